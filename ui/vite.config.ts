import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// The fonts that PatternFly brings are 1 MB; the page has those of the system.
const withoutFonts = {
  name: 'without-fonts',
  enforce: 'pre' as const,
  transform: (code: string, id: string) =>
    id.endsWith('styles/base.css') ? code.replace(/@font-face\s*\{[^}]*\}/g, '') : undefined,
};

export default defineConfig({
  base: './', // works under any prefix
  plugins: [withoutFonts, react()],
  build: { modulePreload: { polyfill: false }, assetsInlineLimit: 0, chunkSizeWarningLimit: 2000 },
  // "API=http://127.0.0.1:9500 npx vite" serves what is being written, with the API of a cluster behind it.
  server: { proxy: { '/v1': { target: process.env.API, ws: true } } },
  // No verdict by time: what hangs is ended by whoever runs the tests.
  test: { environment: 'node', include: ['src/**/*.test.ts'], testTimeout: 600_000 },
} as Parameters<typeof defineConfig>[0]);
