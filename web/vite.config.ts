import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const out = "../gen/web";

/** The most that the dashboard may weigh, all files together (U16). */
const limitKiB = 150;

/** Fails a build whose files are too large together. */
function weight(): Plugin {
  return {
    name: "iop-weight",
    apply: "build",
    closeBundle() {
      let bytes = 0;
      for (const file of readdirSync(out, { recursive: true, withFileTypes: true })) {
        // licenses.md is for people who ask for it; the page does not load it.
        if (file.isFile() && file.name !== "licenses.md") {
          bytes += gzipSync(readFileSync(`${file.parentPath}/${file.name}`), { level: 9 }).length;
        }
      }
      const kib = bytes / 1024;
      if (kib > limitKiB) {
        throw new Error(`the dashboard is ${kib.toFixed(1)} KiB gzipped; at most ${limitKiB} are allowed`);
      }
      console.log(`the dashboard is ${kib.toFixed(1)} KiB gzipped, of ${limitKiB} allowed`);
    },
  };
}

// Names without hashes and a relative base: the same sources give the same files,
// and they work under whatever path they are served.
export default defineConfig({
  base: "./",
  plugins: [react(), weight()],
  resolve: {
    // gen/ts has no packages of its own beside it.
    dedupe: ["@bufbuild/protobuf", "react", "react-dom"],
    alias: [{ find: /^.*\/buf\/validate\/validate_pb\.js$/, replacement: fileURLToPath(new URL("src/api/validate.ts", import.meta.url)) }],
  },
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
    license: { fileName: "licenses.md" },
    rolldownOptions: {
      output: {
        entryFileNames: "app.js",
        chunkFileNames: "[name].js",
        assetFileNames: "app[extname]",
      },
    },
  },
  server: {
    host: "127.0.0.1",
    proxy: Object.fromEntries(["/iop.", "/dashboard/site.json"].map((path) => [path, process.env["IOP_EDGE"] ?? "http://127.0.0.1:8484"])),
  },
});
