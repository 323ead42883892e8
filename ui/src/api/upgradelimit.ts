import { useQuery } from '@tanstack/react-query';
import { call } from './client';
import type { Setting } from './wire';

export const limitName = 'concurrent-automatic-engine-upgrade-per-node-limit';

/** useUpgradeLimit is how many engines of a node are upgraded by themselves at a time; 0 is none, undefined not known yet. */
export function useUpgradeLimit(): number | undefined {
  const { data } = useQuery({ queryKey: ['setting', limitName], queryFn: () => call<Setting>('GET', `settings/${limitName}`), staleTime: 30_000 });
  return data && Number(data.value);
}
