import { useCallback, useSyncExternalStore } from 'react';
import { apply, type Message } from './apply';
import { base, call } from './client';
import type { Resource } from './types.gen';

/** What a stream has: its list, and since when nothing comes any more. */
export interface State<T> {
  list: T[] | undefined;
  cutSince: number | undefined;
  failure: string | undefined;
}

const nothing: State<never> = { list: undefined, cutSince: undefined, failure: undefined };
/** Lists that cannot be asked for by the name of their stream, with one that the same right is needed for. */
const besides: Record<string, string> = { backups: 'backupvolumes' };

let proof = '';

/** show sets what the server gives its own pages to open streams with, see Session. */
export function show(streamProof: string) {
  proof = streamProof;
}

const longestPause = 10_000;
/** A stream that nobody shows any more stays open for so long: people go to and fro between pages. */
const linger = 2_000;

/** Stream keeps one list as it is on the server. After a cut it begins with the whole list again, so nothing is missed. */
class Stream {
  state: State<Resource> = nothing;
  private readonly listeners = new Set<() => void>();
  private socket: WebSocket | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private closing: ReturnType<typeof setTimeout> | undefined;
  private pause = 500;

  constructor(private readonly name: string) {}

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    clearTimeout(this.closing);
    if (!this.socket && !this.timer) this.open();
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) this.closing = setTimeout(() => this.close(), linger);
    };
  }

  private set(change: Partial<State<Resource>>) {
    this.state = { ...this.state, ...change };
    this.listeners.forEach((tell) => tell());
    overall.forEach((tell) => tell());
  }

  private open() {
    this.timer = undefined;
    const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(`${scheme}//${location.host}${base}v1/ws/1s/${this.name}?deltas=true`,
      proof ? ['ankole', `ankole.page.${proof}`] : []);
    this.socket = socket;
    socket.onmessage = (event: MessageEvent<string>) => {
      this.pause = 500;
      this.set({ list: apply(this.state.list, JSON.parse(event.data) as Message), cutSince: undefined, failure: undefined });
    };
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.socket = undefined;
      this.set({ cutSince: this.state.cutSince ?? Date.now() });
      this.timer = setTimeout(() => this.open(), this.pause);
      this.pause = Math.min(this.pause * 2, longestPause);
      void this.why();
    };
  }

  /** why asks for the list itself: a browser does not say why a stream was refused. */
  private async why() {
    try {
      await call('GET', besides[this.name] ?? this.name);
    } catch (e) {
      this.set({ failure: (e as Error).message });
    }
  }

  /** reopen connects at once where it waits to. */
  reopen() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.open();
  }

  close() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const socket = this.socket;
    this.socket = undefined;
    socket?.close();
    this.set(nothing);
  }

  get used() {
    return this.listeners.size > 0;
  }
}

const streams = new Map<string, Stream>();
const overall = new Set<() => void>();

function streamOf(name: string): Stream {
  let stream = streams.get(name);
  if (!stream) streams.set(name, (stream = new Stream(name)));
  return stream;
}

/** useStream follows a list for as long as the component is shown. */
export function useStream<T extends object>(name: string): State<T & Resource> {
  const stream = streamOf(name);
  const subscribe = useCallback((listener: () => void) => stream.subscribe(listener), [stream]);
  return useSyncExternalStore(subscribe, () => stream.state) as State<T & Resource>;
}

/** useCut is since when some list that the page shows is not live, undefined while all are. */
export function useCut(): number | undefined {
  return useSyncExternalStore(
    (listener) => (overall.add(listener), () => void overall.delete(listener)),
    () => [...streams.values()].reduce<number | undefined>((since, s) =>
      s.used && s.state.cutSince !== undefined ? Math.min(since ?? Infinity, s.state.cutSince) : since, undefined),
  );
}

/** reopen has every stream that was cut connect at once, as after logging in. */
export function reopen() {
  streams.forEach((s) => s.reopen());
}

/** forget closes every stream and drops what it held, as at the end of a session. */
export function forget() {
  streams.forEach((s) => s.close());
}
