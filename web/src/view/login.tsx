import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import type { SiteKind } from "../api/calls.js";
import { getToken, setToken } from "../api/session.js";

/** Asks for a token. refused counts how often there was none, or one that did not do. */
export function Login({ kind, refused, onToken }: { kind: SiteKind; refused: number; onToken(): void }) {
  const queries = useQueryClient();
  const [text, setText] = useState("");
  const [empty, setEmpty] = useState(false);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const token = text.trim();
    setEmpty(token === "");
    if (token !== "") {
      // What another token was answered is nobody's business any more.
      queries.clear();
      setToken(token);
      onToken();
    }
  };
  const error = empty ? "Paste a token first." : getToken() !== "" ? "This token was not accepted. Paste a read token or an admin token." : "";
  return (
    <main className="login" data-testid="login">
      <form onSubmit={submit} noValidate>
        <h1>IOP {kind === "fleet" ? "fleet" : "dashboard"}</h1>
        <label htmlFor="token">Access token</label>
        <input
          id="token"
          type="password"
          autoComplete="current-password"
          spellCheck={false}
          value={text}
          onChange={(event) => setText(event.target.value)}
          aria-invalid={error !== ""}
          aria-describedby="token-help token-error"
          // The form is all there is on this page.
          // eslint-disable-next-line jsx-a11y/no-autofocus
          autoFocus
        />
        <p key={refused} id="token-error" role="alert" className="bad-text">
          {error}
        </p>
        <button type="submit" className="primary">
          Sign in
        </button>
        <p id="token-help" className="quiet">
          {kind === "fleet"
            ? "A token of controlplane.read_tokens lets you look."
            : "A token of edge.read_tokens lets you look; one of edge.admin_tokens also lets you cancel, drain and reload."}{" "}
          It stays in this tab until you close it or sign out. An API key is not a token.
        </p>
      </form>
    </main>
  );
}
