// Files that the page sends. They go on whatever page is shown; who closes the page ends them, and the browser asks before.
import { useSyncExternalStore } from 'react';
import { takesUpload } from '../images';
import { base, call, refused, Refused } from './client';
import type { BackingImage } from './wire';

export interface Upload {
  image: string;
  file: string;
  /** waiting: for the server; storing: all was sent, and is checked and written; failed has why. */
  state: 'waiting' | 'sending' | 'storing' | 'failed';
  sent: number;
  size: number;
  failure?: string;
}

/** The pause between two looks whether the server is ready for the file, and for how long it may not be. */
const pause = 500, patience = 120_000;

let uploads: readonly Upload[] = [];
const ends = new Map<string, AbortController>();
const listeners = new Set<() => void>();

function set(all: readonly Upload[]) {
  uploads = all;
  const running = all.some((u) => u.state !== 'failed');
  window[running ? 'addEventListener' : 'removeEventListener']('beforeunload', stay);
  listeners.forEach((tell) => tell());
}

const stay = (e: BeforeUnloadEvent) => e.preventDefault();
const change = (image: string, to: Partial<Upload>) => set(uploads.map((u) => (u.image === image ? { ...u, ...to } : u)));

/** dropUpload ends an upload, or forgets that it has failed. */
export function dropUpload(image: string) {
  ends.get(image)?.abort();
  ends.delete(image);
  set(uploads.filter((u) => u.image !== image));
}

/** dropUploads ends all, as at the end of a session. */
export const dropUploads = () => uploads.forEach((u) => dropUpload(u.image));

export const useUploads = () => useSyncExternalStore((listener) => (listeners.add(listener), () => void listeners.delete(listener)), () => uploads);

async function awaited(image: string, end: AbortSignal) {
  for (const until = Date.now() + patience; !end.aborted;) {
    if (takesUpload(await call<BackingImage>('GET', `backingimages/${encodeURIComponent(image)}`))) return;
    if (Date.now() > until) throw new Refused(0, `Nothing takes the file after ${patience / 1000} s. The page of the image says why; send it again with Upload….`);
    await new Promise((done) => { setTimeout(done, pause); });
  }
}

/** send is a request of the old kind: that of fetch does not tell how much was sent. The browser reads the file as it goes. */
function send(image: string, file: File, end: AbortSignal): Promise<void> {
  return new Promise((done, fail) => {
    const form = new FormData();
    form.append('chunk', file);
    const request = new XMLHttpRequest();
    request.open('POST', `${base}v1/backingimages/${encodeURIComponent(image)}?action=upload&size=${file.size}`);
    request.setRequestHeader('Accept', 'application/json');
    // What is sent is a little more than the file.
    request.upload.onprogress = (e) => change(image, { sent: Math.min(file.size, e.loaded) });
    request.upload.onload = () => change(image, { state: 'storing', sent: file.size });
    request.onload = () => (request.status === 200 ? done() : fail(refused(request.status, request.statusText, request.responseText)));
    request.onerror = () => fail(new Refused(0, 'The connection was cut, or a proxy allows no body of this size. Nothing of the file is kept; send it again with Upload….'));
    end.addEventListener('abort', () => request.abort());
    request.send(form);
  });
}

/** upload sends the content of an image once the server is ready for it; stored is called when it has all of it. */
export async function upload(image: string, file: File, stored: () => void): Promise<void> {
  dropUpload(image);
  const end = new AbortController();
  ends.set(image, end);
  set([...uploads, { image, file: file.name, state: 'waiting', sent: 0, size: file.size }]);
  try {
    await awaited(image, end.signal);
    if (end.signal.aborted) return;
    change(image, { state: 'sending' });
    await send(image, file, end.signal);
    dropUpload(image);
    stored();
  } catch (e) {
    if (!end.signal.aborted) change(image, { state: 'failed', failure: (e as Error).message });
  }
}
