import { expect, test } from 'vitest';
import { claimedOf } from './usage';

test('the labels of a backup say who used the volume', () => {
  const status = { namespace: 'shop', pvcName: 'orders', pvName: 'pvc-1', workloadsStatus: [{ podName: 'db-0', workloadName: 'db' }, { podName: 'db-1' }] };
  const c = claimedOf({ KubernetesStatus: JSON.stringify(status), VolumeRecurringJobInfo: '{}', RecurringJob: 'nightly' });
  expect(c).toMatchObject({ namespace: 'shop', claim: 'shop/orders', pods: 'db-0, db-1', others: 'RecurringJob=nightly' });
  for (const word of ['shop/orders', 'pvc-1', 'db-1', 'nightly']) expect(c.text).toContain(word);
});

test('what cannot be read says nothing', () => {
  for (const text of ['{', 'null', '[]', '7', '{"workloadsStatus":{}}', '{"workloadsStatus":null}', '']) {
    expect(claimedOf({ KubernetesStatus: text })).toMatchObject({ namespace: '', claim: '', pods: '' });
  }
  for (const labels of [null, undefined, {}]) expect(claimedOf(labels).text.trim()).toBe('');
});
