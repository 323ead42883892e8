import type { Resource } from './types.gen';

/** A message of a stream: a whole list, or what has become of the one before. */
export interface Message {
  type: string;
  data: Resource[];
  removed?: string[];
}

/** apply makes the list that a client has after a message, in the order of the ids. Members that are the same stay the same
 * objects, so that only rows which changed are drawn anew. */
export function apply(before: readonly Resource[] | undefined, message: Message): Resource[] {
  if (message.type !== 'changes' || !before) return message.data;
  const members = new Map(before.map((o) => [o.id, o]));
  for (const id of message.removed ?? []) members.delete(id);
  for (const o of message.data) members.set(o.id, o);
  return [...members.values()].sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));
}
