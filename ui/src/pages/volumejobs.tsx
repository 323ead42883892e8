import { Button, FormGroup } from '@patternfly/react-core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { act, type Collection } from '../api/client';
import { useStream } from '../api/stream';
import type * as gen from '../api/types.gen';
import type { RecurringJob, Volume } from '../api/wire';
import { Dialog, Quiet, Section } from '../components/basics';
import { Choice } from '../components/choice';
import { type Column, DataTable } from '../components/table';
import { useCan } from './volumeactions';

type Follows = Pick<gen.VolumeRecurringJob, 'name' | 'isGroup'>;

/** VolumeJobs are the recurring jobs and groups that a volume follows. */
export function VolumeJobs({ of: v }: { of: Volume }) {
  const can = useCan();
  const client = useQueryClient();
  const key = ['volumejobs', v.id];
  const { data, error } = useQuery({ queryKey: key, queryFn: () => act<Collection<Follows>>('volumes', v.id, 'recurringJobList').then((c) => c.data ?? []) });
  const jobs = useStream<RecurringJob>('recurringjobs').list ?? [];
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<Follows>();
  const [chosen, setChosen] = useState('');
  const refresh = () => client.invalidateQueries({ queryKey: key });
  const keyOf = (f: Follows) => `${f.isGroup ? 'group' : 'job'} ${f.name}`;
  const groups = [...new Set(['default', ...jobs.flatMap((j) => j.groups ?? [])])].sort();
  const free = [...jobs.map((j) => ({ name: j.name, isGroup: false })), ...groups.map((name) => ({ name, isGroup: true }))].filter((f) => !data?.some((d) => keyOf(d) === keyOf(f)));
  const choice = free.find((f) => keyOf(f) === chosen) ?? free[0];
  const does = (f: Follows) => jobs.filter((j) => (f.isGroup ? (j.groups ?? []).includes(f.name) : j.name === f.name)).map((j) => `${j.name}: ${j.task}, ${j.cron}`).join('; ');
  const columns: Column<Follows>[] = [
    { title: 'Job or group', cell: (f) => f.name, by: (f) => f.name },
    { title: 'Kind', width: 7, cell: (f) => (f.isGroup ? 'group' : 'job') },
    { title: 'What is done', wrap: true, cell: (f) => does(f) || <Quiet>there is no such job</Quiet> },
    { title: 'Actions', width: 7, cell: (f) => can(v, 'recurringJobDelete') && <Button variant="link" isInline isDanger onClick={() => setRemoving(f)}>Leave</Button> },
  ];
  return (
    <Section title="Recurring jobs" actions={can(v, 'recurringJobAdd') && (
      <><span className="ak-grow" /><Button variant="secondary" size="sm" onClick={() => setAdding(true)}>Follow a job</Button></>
    )}>
      <DataTable label="Recurring jobs" columns={columns} rows={data} keyOf={keyOf} failure={error?.message} sortKey="jobs"
        empty="The volume follows no job or group of its own: the jobs of group default are done." />
      {adding && (
        <Dialog title={`A recurring job for ${v.name}`} label="Follow" ready={!!choice} done="The volume follows it" onClose={() => setAdding(false)}
          run={() => act('volumes', v.id, 'recurringJobAdd', choice).then(refresh)}>
          {choice ? <Choice id="job" label="Job or group" value={keyOf(choice)} options={free.map((f): [string, string] => [keyOf(f), keyOf(f)])} onChange={setChosen} />
            : <FormGroup label="Job or group" fieldId="job"><Quiet>There is no other one; make one on page Recurring jobs.</Quiet></FormGroup>}
        </Dialog>
      )}
      {removing && (
        <Dialog danger title={`${v.name} leaves ${keyOf(removing)}?`} label="Leave" done="The volume does not follow it any more" onClose={() => setRemoving(undefined)}
          run={() => act('volumes', v.id, 'recurringJobDelete', { name: removing.name, isGroup: removing.isGroup }).then(refresh)}>
          {does(removing) ? `It is not done for this volume any more: ${does(removing)}. What it has made stays.` : 'There is no such job now.'}
        </Dialog>
      )}
    </Section>
  );
}
