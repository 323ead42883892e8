const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

/** bytes says a size as people type it: whole where it is whole, else with three digits. */
export function bytes(size: string | number | undefined | null): string {
  let n = Number(size ?? 0);
  if (!Number.isFinite(n)) return String(size);
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit++;
  }
  return `${Number.isInteger(n) ? n : Number(n.toPrecision(Math.abs(n) >= 100 ? 4 : 3))} ${units[unit]}`;
}

/** typed says a size as the API reads it: 20Gi, or a number of bytes. */
export const typed = (size: string | number | undefined) => {
  const text = bytes(size);
  return /\./.test(text) ? String(size) : text.replace(/ B$/, '').replace(/ (.i)B$/, '$1');
};

const factors: Record<string, number> = { '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

/** sizeOf reads a size as the API does, undefined if it is none that people type; the API knows a few more. */
export function sizeOf(text: string): number | undefined {
  const [, number = '', unit = ''] = /^(\d+(?:\.\d+)?)([kMGTPE]|[KMGTPE]i)?$/.exec(text.trim()) ?? [];
  return number ? Number(number) * (factors[unit] ?? 1) : undefined;
}

/** parseTime reads both forms of /v1: RFC 3339, and "2006-01-02 15:04:05 +0000 UTC". */
export function parseTime(text: string | undefined | null): Date | undefined {
  if (!text) return undefined;
  const date = new Date(text.replace(/^(\S+) (\S+) \+0000 UTC$/, '$1T$2Z'));
  return Number.isNaN(date.getTime()) || date.getTime() <= 0 ? undefined : date;
}

/** local is a time in the zone of the browser. */
export function local(date: Date): string {
  const two = (n: number) => String(n).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** ago says how long before now a time was, in its largest unit that is not less than two. */
export function ago(date: Date, now: number): string {
  const s = Math.max(0, Math.floor((now - date.getTime()) / 1000));
  const [n, unit] = s >= 2 * 86400 ? [s / 86400, 'd'] : s >= 2 * 3600 ? [s / 3600, 'h'] : s >= 2 * 60 ? [s / 60, 'min'] : [s, 's'];
  return `${Math.floor(Number(n))} ${unit} ago`;
}

/** percent says a share; what is little is not nothing. */
export function percent(part: number, whole: number): string {
  if (whole <= 0) return '–';
  const share = (100 * part) / whole;
  return share > 0 && share < 1 ? '< 1 %' : `${Math.round(share)} %`;
}

/** seconds reads a duration as Go writes it ("1h5m0s"), or a number of seconds. */
export function seconds(text: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  const [, h, m, s] = /^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/.exec(text) ?? [];
  return Number(h ?? 0) * 3600 + Number(m ?? 0) * 60 + Number(s ?? 0);
}

export const plural = (n: number, one: string, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

/** words reads what people type into a field for a list of words. */
export const words = (text: string) => text.split(/[\s,]+/).filter(Boolean);

/** pairs says labels and the like as people type them. */
export const pairs = (of: Record<string, string> | null | undefined) => Object.entries(of ?? {}).map(([k, v]) => `${k}=${v}`).join(', ');

/** pairsOf reads them back; a name without a value has an empty one. */
export const pairsOf = (text: string): Record<string, string> => Object.fromEntries(words(text).map((w) => {
  const at = w.indexOf('=');
  return at < 0 ? [w, ''] : [w.slice(0, at), w.slice(at + 1)];
}));
