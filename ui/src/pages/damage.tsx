import { Alert, Button, FormGroup, TextInput } from '@patternfly/react-core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { call } from '../api/client';
import type { BackupDamage, Volume } from '../api/wire';
import { Dialog } from '../components/basics';
import { useAccess } from '../session';
import { decisionOf } from '../verification';

const place = (volume: string) => `backupdamage/${encodeURIComponent(volume)}`;

export type Decision = 'accept' | 'acknowledge';
type Text = { title: string; body: string; label: string; done: string; lost: string };

/** decide writes down what a person has decided about the damaged backup of a volume. */
export const decide = (volume: string, decision: Decision) => call<BackupDamage>('POST', place(volume), { decision });

const older: Text = {
  title: 'The newest backup cannot be restored', body: 'The volume is activated when it holds the newest backup. The last attempt to restore that has failed, and it is tried again. Mend the backup target, or do without that backup.',
  label: 'Activate without it', done: 'The volume is activated with the backup that it holds', lost: 'The volume keeps the backup that it holds. What was written after that is not in it.',
};
const texts: Record<Decision, Text> = {
  accept: {
    title: 'The backup is damaged', body: 'The restore fails and is tried again. Restore another backup, or accept that what the backup target does not have becomes zero in this volume.',
    label: 'Accept the damage', done: 'The damage is accepted; the next attempt fills the volume', lost: 'What the backup target does not have becomes zero. The volume tells which ranges these are.',
  },
  acknowledge: {
    title: 'The volume is not whole', body: 'It was restored from a damaged backup. The ranges that are zero are named under “Why?” until that is acknowledged.',
    label: 'Acknowledge the damage', done: 'The damage is acknowledged', lost: 'The volume does not tell any more which ranges are zero. Write them down if they are needed.',
  },
};

/** Damage asks for a decision about a volume whose backup the store does not have whole. */
export function Damage({ of: v }: { of: Volume }) {
  const { may } = useAccess();
  const client = useQueryClient();
  const [deciding, setDeciding] = useState<Decision>();
  const [typed, setTyped] = useState('');
  const zero = v.conditions?.BackupDamage?.status === 'True';
  const key = ['damage', v.id];
  const { data } = useQuery({ queryKey: [...key, zero, v.restoreRequired, v.conditions?.Restore?.message], queryFn: () => call<BackupDamage>('GET', place(v.name)),
    enabled: !!v.fromBackup && (zero || v.restoreRequired) });
  const decision = decisionOf(data);
  const textOf = (d: Decision) => (data?.activating ? older : texts[d]);
  const asked = deciding && textOf(deciding);
  return (
    <>
      {data?.restoring && data.accepted && !data.refused && !data.activating && (
        <Alert component="div" isInline variant="info" className="ak-section" title="Damage of the backup is accepted">What the backup target does not have becomes zero in this restore.</Alert>
      )}
      {decision && (
        <Alert component="div" isInline variant="danger" className="ak-section" title={textOf(decision).title}
          actionLinks={may('POST', 'backupdamage/{name}') && <Button variant="link" isInline onClick={() => { setTyped(''); setDeciding(decision); }}>{textOf(decision).label}…</Button>}>
          {textOf(decision).body}
        </Alert>
      )}
      {deciding && asked && (
        <Dialog danger title={`${asked.label} of ${v.name}?`} label={asked.label} ready={typed === v.name} done={asked.done} onClose={() => setDeciding(undefined)}
          run={() => decide(v.name, deciding).then(() => client.invalidateQueries({ queryKey: key }))}>
          <p>{asked.lost}</p>
          {data?.activating && <p>It holds backup {data.held}.</p>}
          {(data?.problem || data?.damage) && <p className="ak-mono">{data.problem || data.damage}</p>}
          <FormGroup label="Type the volume's name" fieldId="sure"><TextInput id="sure" autoFocus value={typed} onChange={(_, x) => setTyped(x)} /></FormGroup>
        </Dialog>
      )}
    </>
  );
}
