import { Button, FormGroup, FormSelect, FormSelectOption, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { call, path } from '../api/client';
import { useStream } from '../api/stream';
import type { RecurringJob } from '../api/wire';
import { Dialog, Quiet } from '../components/basics';
import { Choice } from '../components/choice';
import { type Column, DataTable } from '../components/table';
import { pairs, pairsOf, words } from '../format';
import { cronOf, daily, type Plan, planOf, said, weekdays } from '../schedule';
import { useAccess } from '../session';
import { Head, usePicked } from './lists';

const tasks = ['snapshot', 'snapshot-force-create', 'snapshot-cleanup', 'snapshot-delete', 'backup', 'backup-force-create', 'filesystem-trim', 'system-backup'];

const custom = 'custom';

/** Schedule asks for one in words, or for the fields of cron. */
function Schedule({ cron, onChange }: { cron: string; onChange: (cron: string) => void }) {
  const [typing, setTyping] = useState(!planOf(cron));
  const plan = planOf(cron) ?? daily;
  const set = (part: Partial<Plan>) => onChange(cronOf({ ...plan, ...part }));
  const number = (id: string, label: string, value: number, most: number, least: number, name: keyof Plan) => (
    <FormGroup label={label} fieldId={id}>
      <TextInput id={id} type="number" min={least} max={most} value={value} onChange={(_, v) => set({ [name]: Math.min(most, Math.max(least, Number(v) || 0)) })} />
    </FormGroup>
  );
  return (
    <>
      <Choice id="every" label="Every" value={typing ? custom : plan.every} options={['hour', 'day', 'week', 'month', [custom, 'as cron says']]}
        onChange={(v) => { setTyping(v === custom); if (v !== custom) set({ every: v as Plan['every'] }); }} />
      {!typing && plan.every === 'week' && <Choice id="weekday" label="On" value={String(plan.weekday)} options={weekdays.map((d, i): [string, string] => [String(i), d])} onChange={(v) => set({ weekday: Number(v) })} />}
      {!typing && plan.every === 'month' && number('day', 'On day', plan.day, 28, 1, 'day')}
      {!typing && plan.every !== 'hour' && number('hour', 'Hour', plan.hour, 23, 0, 'hour')}
      {!typing && number('minute', 'Minute', plan.minute, 59, 0, 'minute')}
      {typing ? <FormGroup label="Schedule (cron)" fieldId="cron"><TextInput id="cron" value={cron} onChange={(_, v) => onChange(v)} /></FormGroup>
        : <Quiet><span role="status">{said(cron)}</span>, in the time zone of Kubernetes (UTC as a rule): <span className="ak-mono">{cron}</span></Quiet>}
    </>
  );
}

function JobDialog({ job, onClose }: { job?: RecurringJob; onClose: () => void }) {
  const [name, setName] = useState(job?.name ?? '');
  const [task, setTask] = useState(job?.task ?? 'snapshot');
  const [cron, setCron] = useState(job?.cron ?? cronOf(daily));
  const [groups, setGroups] = useState((job?.groups ?? []).join(' '));
  const [retain, setRetain] = useState(String(job?.retain ?? 7));
  const [concurrency, setConcurrency] = useState(String(job?.concurrency ?? 2));
  const [labels, setLabels] = useState(pairs(job?.labels));
  const [interval, setInterval] = useState(job?.parameters?.['full-backup-interval'] ?? '');
  const keeps = !['snapshot-cleanup', 'filesystem-trim'].includes(task);
  const backs = task.startsWith('backup');
  const parameters = { ...job?.parameters };
  if (backs && interval) parameters['full-backup-interval'] = interval;
  else delete parameters['full-backup-interval'];
  const wanted = { ...job, name, task, cron, groups: words(groups), retain: keeps ? Number(retain) : 0, concurrency: Number(concurrency), labels: pairsOf(labels), parameters };
  return (
    <Dialog title={job ? `Edit recurring job ${job.name}` : 'Create recurring job'} label={job ? 'Save' : 'Create'} ready={!!name} done={`Recurring job ${name} is saved`}
      onClose={onClose} run={() => (job ? call('PUT', path('recurringjobs', job), wanted) : call('POST', 'recurringjobs', wanted))}>
      {!job && <FormGroup label="Name" fieldId="name"><TextInput id="name" autoFocus value={name} onChange={(_, v) => setName(v)} /></FormGroup>}
      {!job && (
        <FormGroup label="Task" fieldId="task">
          <FormSelect id="task" value={task} onChange={(_, v) => setTask(v)}>{tasks.map((t) => <FormSelectOption key={t} value={t} label={t} />)}</FormSelect>
        </FormGroup>
      )}
      <Schedule cron={cron} onChange={setCron} />
      <FormGroup label="Groups (default: volumes without a job or group)" fieldId="groups"><TextInput id="groups" value={groups} onChange={(_, v) => setGroups(v)} /></FormGroup>
      {keeps && <FormGroup label="Retain" fieldId="retain"><TextInput id="retain" type="number" value={retain} onChange={(_, v) => setRetain(v)} /></FormGroup>}
      {backs && <FormGroup label="Every so many backups one is full (empty: never)" fieldId="interval"><TextInput id="interval" type="number" value={interval} onChange={(_, v) => setInterval(v)} /></FormGroup>}
      <FormGroup label="Volumes at a time" fieldId="concurrency"><TextInput id="concurrency" type="number" value={concurrency} onChange={(_, v) => setConcurrency(v)} /></FormGroup>
      <FormGroup label="Labels of what it makes, such as app=web, tier=1" fieldId="labels"><TextInput id="labels" value={labels} onChange={(_, v) => setLabels(v)} /></FormGroup>
    </Dialog>
  );
}

export function RecurringJobs() {
  const { list: all, failure } = useStream<RecurringJob>('recurringjobs');
  const { may } = useAccess();
  const rows = usePicked(all, (j) => `${j.name} ${j.task} ${(j.groups ?? []).join(' ')}`);
  const [editing, setEditing] = useState<RecurringJob | 'new'>();
  const [deleting, setDeleting] = useState<RecurringJob>();
  const columns: Column<RecurringJob>[] = [
    { title: 'Name', cell: (j) => j.name, by: (j) => j.name },
    { title: 'Task', width: 13, cell: (j) => j.task, by: (j) => j.task },
    { title: 'Schedule', width: 14, cell: (j) => <span title={j.cron}>{said(j.cron)}</span>, by: (j) => j.cron },
    { title: 'Groups', cell: (j) => (j.groups ?? []).join(', ') || '–' },
    { title: 'Retain', width: 6, cell: (j) => j.retainAge || j.retain, by: (j) => j.retain },
    { title: 'At a time', width: 7, cell: (j) => j.concurrency, by: (j) => j.concurrency },
    { title: 'Runs', width: 6, cell: (j) => j.executionCount, by: (j) => j.executionCount },
    { title: 'Parameters', cell: (j) => pairs(j.parameters) || '–' },
    { title: 'Labels', cell: (j) => pairs(j.labels) || '–' },
    { title: 'Actions', width: 9, cell: (j) => (
      <>
        {may('PUT', 'recurringjobs') && <Button variant="link" isInline aria-label={`Edit ${j.name}`} onClick={() => setEditing(j)}>Edit</Button>}{' '}
        {may('DELETE', 'recurringjobs') && <Button variant="link" isInline isDanger aria-label={`Delete ${j.name}`} onClick={() => setDeleting(j)}>Delete</Button>}
      </>
    ) },
  ];
  return (
    <>
      <Head title="Recurring jobs" of={rows}>{may('POST', 'recurringjobs') && <Button onClick={() => setEditing('new')}>Create recurring job</Button>}</Head>
      <DataTable label="Recurring jobs" columns={columns} rows={rows} keyOf={(j) => j.id} failure={failure}
        empty="There is no recurring job. One takes snapshots, cleans up or trims by the clock, for volumes in its groups." />
      {editing && <JobDialog job={editing === 'new' ? undefined : editing} onClose={() => setEditing(undefined)} />}
      {deleting && (
        <Dialog danger title={`Delete recurring job ${deleting.name}?`} label="Delete" done={`Recurring job ${deleting.name} is deleted`} onClose={() => setDeleting(undefined)}
          run={() => call('DELETE', path('recurringjobs', deleting))}>
          It runs no more, and every volume that names it loses its label. Snapshots and backups that it has made stay.
        </Dialog>
      )}
    </>
  );
}
