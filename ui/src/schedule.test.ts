import { expect, test } from 'vitest';
import { cronOf, daily, type Plan, planOf, said } from './schedule';

test('what is chosen is written and read back', () => {
  const plans: [Partial<Plan>, string][] = [[{ every: 'hour', minute: 5 }, '5 * * * *'], [{ every: 'day', minute: 30, hour: 2 }, '30 2 * * *'],
    [{ every: 'week', hour: 1, weekday: 6 }, '0 1 * * 6'], [{ every: 'month', hour: 4, day: 28 }, '0 4 28 * *']];
  for (const [part, cron] of plans) {
    const plan = { ...daily, ...part };
    expect(cronOf(plan)).toBe(cron);
    expect(planOf(cron)).toEqual(plan);
  }
  expect(planOf(' 0 0 * * 7 ')).toEqual({ ...daily, every: 'week', weekday: 0 });
  expect(planOf('@daily')).toEqual(daily);
});

test('what no plan stands for stays as it was typed', () => {
  for (const cron of ['*/5 * * * *', '0 0 31 * *', '0 0 1 1 *', '0 0 1 * 1', '60 * * * *', '0 24 * * *', '0 0 * * 8', '0 0 * *', '', '1,2 * * * *']) {
    expect(planOf(cron), cron).toBeUndefined();
    expect(said(cron)).toBe(cron);
  }
});

test('schedules are said in words', () => {
  expect(['5 * * * *', '0 2 * * *', '0 0 * * 1', '15 3 7 * *'].map(said)).toEqual(
    ['every hour at :05', 'every day at 02:00', 'every Monday at 00:00', 'on day 7 of each month at 03:15']);
});
