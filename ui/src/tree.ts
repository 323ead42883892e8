/** A snapshot as both kinds of lists give it. */
export interface Layer {
  name: string;
  parent: string;
  removed: boolean;
  byUser: boolean;
  created: string;
  size: number;
  labels: Record<string, string>;
  note?: string;
}

export const head = 'volume-head';

/** order puts snapshots below their parents. A chain stays at one depth; beside it, what branches off is one deeper and stands
 * first, so that the chain with the head goes on to the end. What has no parent that is there is a root. */
export function order(layers: readonly Layer[]): (Layer & { depth: number })[] {
  const names = new Set(layers.map((l) => l.name));
  const below = new Map<string, Layer[]>();
  for (const l of layers) {
    const parent = names.has(l.parent) && l.parent !== l.name ? l.parent : '';
    below.set(parent, [...(below.get(parent) ?? []), l]);
  }
  const towardsHead = new Set<string>();
  const parents = new Map(layers.map((l) => [l.name, l.parent]));
  for (let name: string | undefined = head; name && parents.has(name) && !towardsHead.has(name); name = parents.get(name)) towardsHead.add(name);
  const out: (Layer & { depth: number })[] = [];
  const seen = new Set<string>();
  const todo: { layer: Layer; depth: number }[] = [];
  const push = (parent: string, depth: number) => {
    const children = (below.get(parent) ?? []).filter((c) => !seen.has(c.name));
    children.sort((a, b) => Number(towardsHead.has(a.name)) - Number(towardsHead.has(b.name)) || a.created.localeCompare(b.created));
    const main = children.at(-1);
    for (const layer of [...children].reverse()) todo.push({ layer, depth: layer === main ? depth : depth + 1 });
  };
  push('', 0);
  for (let next = todo.pop(); next; next = todo.pop()) {
    if (seen.has(next.layer.name)) continue;
    seen.add(next.layer.name);
    out.push({ ...next.layer, depth: next.depth });
    push(next.layer.name, next.depth);
  }
  // What is in a circle of parents hangs below no root, and is shown all the same.
  for (const l of layers) if (!seen.has(l.name)) out.push({ ...l, depth: 0 });
  return out;
}
