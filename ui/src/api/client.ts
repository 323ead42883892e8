import type { Resource } from './types.gen';

/** Where the page is: it may be below a prefix that a proxy takes away. It ends with a slash. */
export const base = new URL('.', location.origin + location.pathname).pathname;

/** What the server says when it refuses. */
export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

const signedOut = new Set<() => void>();

/** onSignedOut tells of answers that want the user to log in, until what it returns is called. */
export function onSignedOut(tell: () => void): () => void {
  signedOut.add(tell);
  return () => signedOut.delete(tell);
}

/** refused is what an answer says that is no success. */
export function refused(status: number, statusText: string, text: string): Refused {
  if (status === 401) signedOut.forEach((tell) => tell());
  let message: string | undefined;
  try {
    message = (JSON.parse(text) as { message?: string }).message;
  } catch {
    message = undefined;
  }
  return new Refused(status, message || text.trim() || `The server answers ${status} ${statusText}.`);
}

export async function call<T = unknown>(method: string, path: string, body?: unknown): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`${base}v1/${path}`, {
      method, headers: { Accept: 'application/json' }, body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Refused(0, 'The server does not answer; the change may or may not have been made. Look again when the page is live.');
  }
  const text = await response.text();
  if (!response.ok) throw refused(response.status, response.statusText, text);
  try {
    return (text ? JSON.parse(text) : undefined) as T;
  } catch {
    return undefined as T;
  }
}

export interface Collection<T> {
  data: T[];
}

/** list reads a whole list once. */
export const list = <T>(name: string) => call<Collection<T>>('GET', name).then((c) => c.data ?? []);

/** act calls an action of an object. */
export const act = <T = unknown>(kind: string, id: string, action: string, input: unknown = {}) =>
  call<T>('POST', `${kind}/${encodeURIComponent(id)}?action=${encodeURIComponent(action)}`, input);

export const path = (kind: string, o: Pick<Resource, 'id'>) => `${kind}/${encodeURIComponent(o.id)}`;
