import { TransportProvider } from "@connectrpc/connect-query";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { mayNot, siteKind, transport } from "./api/calls.js";
import { App } from "./view/app.js";
import "./style.css";

const queries = new QueryClient({
  defaultOptions: { queries: { retry: (failures, error) => failures < 2 && !mayNot(error), refetchOnWindowFocus: false } },
});

const root = document.getElementById("root");
if (root) {
  const kind = await siteKind();
  createRoot(root).render(
    <StrictMode>
      <TransportProvider transport={transport}>
        <QueryClientProvider client={queries}>
          <App kind={kind} />
        </QueryClientProvider>
      </TransportProvider>
    </StrictMode>,
  );
}
