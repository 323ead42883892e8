/** Plan is a schedule that can be chosen without knowing cron. */
export interface Plan {
  every: 'hour' | 'day' | 'week' | 'month';
  minute: number;
  hour: number;
  /** weekday is 0 for Sunday. */
  weekday: number;
  /** day of the month, at most 28, so that every month has it. */
  day: number;
}

export const weekdays = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
export const daily: Plan = { every: 'day', minute: 0, hour: 0, weekday: 0, day: 1 };

/** cronOf writes a plan with the five fields of cron. */
export function cronOf(p: Plan): string {
  switch (p.every) {
    case 'hour': return `${p.minute} * * * *`;
    case 'day': return `${p.minute} ${p.hour} * * *`;
    case 'week': return `${p.minute} ${p.hour} * * ${p.weekday}`;
    case 'month': return `${p.minute} ${p.hour} ${p.day} * *`;
  }
}

/** planOf reads a schedule back, undefined for one that no plan stands for. */
export function planOf(cron: string): Plan | undefined {
  const named: Record<string, string> = { '@hourly': '0 * * * *', '@daily': '0 0 * * *', '@midnight': '0 0 * * *', '@weekly': '0 0 * * 0', '@monthly': '0 0 1 * *' };
  const fields = (named[cron.trim()] ?? cron.trim()).split(/\s+/);
  if (fields.length !== 5) return undefined;
  const number = (i: number, least: number, most: number) => {
    const n = Number(fields[i]);
    return /^\d+$/.test(fields[i] ?? '') && n >= least && n <= most ? n : undefined;
  };
  const minute = number(0, 0, 59), hour = number(1, 0, 23), day = number(2, 1, 28), weekday = number(4, 0, 7);
  const any = (i: number) => fields[i] === '*';
  if (minute === undefined || !any(3)) return undefined;
  if (any(1) && any(2) && any(4)) return { ...daily, every: 'hour', minute };
  if (hour === undefined) return undefined;
  if (any(2) && any(4)) return { ...daily, every: 'day', minute, hour };
  if (any(2) && weekday !== undefined) return { ...daily, every: 'week', minute, hour, weekday: weekday % 7 };
  if (any(4) && day !== undefined) return { ...daily, every: 'month', minute, hour, day };
  return undefined;
}

/** said is a schedule in words; what no plan stands for is said as it is. Kubernetes reads schedules in the zone of its controller manager, UTC as a rule. */
export function said(cron: string): string {
  const p = planOf(cron);
  if (!p) return cron;
  const two = (n: number) => String(n).padStart(2, '0');
  const at = `${two(p.hour)}:${two(p.minute)}`;
  switch (p.every) {
    case 'hour': return `every hour at :${two(p.minute)}`;
    case 'day': return `every day at ${at}`;
    case 'week': return `every ${weekdays[p.weekday]} at ${at}`;
    case 'month': return `on day ${p.day} of each month at ${at}`;
  }
}
