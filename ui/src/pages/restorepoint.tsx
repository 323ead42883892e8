import { Button } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { act } from '../api/client';
import type { Backup, Volume } from '../api/wire';
import { Time } from '../components/basics';
import { ago, parseTime } from '../format';
import { useAccess } from '../session';
import { RestoreDialog } from './restore';

/** pointOf is the backup that holds the newest content that can be had again: the last one of a volume, or that which a standby volume holds. */
const pointOf = (v: Volume) => (v.standby ? (v.controllers ?? []).map((c) => c.lastRestoredBackup).find(Boolean) : v.lastBackup) || '';

/** RestorePoint is the time of the content that would be there after the loss of the volume, with the way to it. */
export function RestorePoint({ of: v }: { of: Volume }) {
  const { may } = useAccess();
  const [restoring, setRestoring] = useState(false);
  const name = pointOf(v);
  const { data: b, error } = useQuery({ queryKey: ['backup', name], queryFn: () => act<Backup>('backupvolumes', name, 'backupGet', { name }), enabled: !!name, staleTime: 60_000 });
  const taken = parseTime(b?.snapshotCreated);
  if (!name) return <>none: there is no backup</>;
  if (!b || !taken) return <>{error?.message ?? '–'}</>;
  return (
    <>
      <Time at={b.snapshotCreated} /> ({ago(taken, Date.now())}){' '}
      {!v.standby && may('POST', 'volumes') && b.state === 'Completed' && <Button variant="link" isInline onClick={() => setRestoring(true)}>Restore…</Button>}
      {restoring && <RestoreDialog backups={[b]} onClose={() => setRestoring(false)} />}
    </>
  );
}
