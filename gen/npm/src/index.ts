import type { Interceptor } from "@connectrpc/connect";

/**
 * Sends a credential with every call: an API key, a read token or an admin token,
 * whichever the service asks for.
 */
export function bearer(secret: string): Interceptor {
  return (next) => (request) => {
    request.header.set("Authorization", `Bearer ${secret}`);
    return next(request);
  };
}
