import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The page is built into the package; the content security policy allows no data: fonts and no inline script.
export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/mpijob/api/page",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    sourcemap: "hidden", // maps.mjs takes them out of the package; coverage.mjs reads them
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 900,
  },
});
