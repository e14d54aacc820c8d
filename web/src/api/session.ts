/**
 * The token that calls are made with. It lives as long as the tab: in
 * sessionStorage, never in the address.
 */
const key = "iop-token";

let token = read();

function read(): string {
  try {
    return sessionStorage.getItem(key) ?? "";
  } catch {
    return ""; // A browser that keeps nothing: the token lasts until the page is left.
  }
}

export function getToken(): string {
  return token;
}

export function setToken(next: string): void {
  token = next;
  try {
    if (next === "") {
      sessionStorage.removeItem(key);
    } else {
      sessionStorage.setItem(key, next);
    }
  } catch {
    // See read.
  }
}

/** Forgets the token, and with the page all that it has shown. */
export function signOut(): void {
  setToken("");
  location.reload();
}
