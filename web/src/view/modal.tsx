import { type ReactNode, useId, useLayoutEffect, useRef } from "react";

/**
 * A native dialog: it keeps the focus, closes at Escape, and gives the focus back
 * to where it was.
 */
export function Modal({
  title,
  testId,
  drawer = false,
  onClose,
  children,
}: {
  title: string;
  testId: string;
  drawer?: boolean;
  onClose(): void;
  children: ReactNode;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => {
      element?.close();
      // What had the focus before may have gone.
      if (document.activeElement === document.body || element?.contains(document.activeElement)) {
        document.getElementById("main")?.focus({ preventScroll: true });
      }
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      className={drawer ? "drawer" : "box"}
      data-testid={testId}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        event.stopPropagation();
        onClose();
      }}
    >
      <div className="dialog-head">
        <h2 id={heading}>{title}</h2>
        <button type="button" className="plain" onClick={onClose}>
          Close
        </button>
      </div>
      {children}
    </dialog>
  );
}

/** Asks before a deed is done, and says what came of it where it failed. */
export function Confirm({
  title,
  consequence,
  deed,
  danger = false,
  pending,
  error,
  onConfirm,
  onKeep,
}: {
  title: string;
  consequence: string;
  deed: string;
  danger?: boolean;
  pending: boolean;
  error: string;
  onConfirm(): void;
  onKeep(): void;
}) {
  return (
    <Modal title={title} testId="confirm-dialog" onClose={onKeep}>
      <p>{consequence}</p>
      <p role="alert" className="bad-text">
        {error}
      </p>
      <div className="actions">
        <button type="button" className={danger ? "danger" : "primary"} data-testid="confirm" disabled={pending} onClick={onConfirm}>
          {deed}
        </button>
        <button type="button" onClick={onKeep}>
          Keep as it is
        </button>
      </div>
    </Modal>
  );
}
