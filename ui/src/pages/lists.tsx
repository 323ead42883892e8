import { Button, FormGroup, FormSelect, FormSelectOption, TextInput, Title } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link, useSearchParams } from 'react-router';
import { call, list, path } from '../api/client';
import { useStream } from '../api/stream';
import type { Condition, EngineImage, Event, InstanceManager, KubernetesEvent, Orphan } from '../api/wire';
import { Dialog, Quiet, State, Time } from '../components/basics';
import { type Column, DataTable } from '../components/table';
import { plural } from '../format';
import { processesOf } from '../health';
import { useAccess } from '../session';

/** Filter is a field whose content is in the address. */
export function Filter({ name = 'q', label = 'Filter' }: { name?: string; label?: string }) {
  const [params, setParams] = useSearchParams();
  return (
    <div style={{ width: '13rem' }}>
      <TextInput type="search" aria-label={label} placeholder={label} value={params.get(name) ?? ''}
        onChange={(_, v) => setParams((p) => (v ? p.set(name, v) : p.delete(name), p), { replace: true })} />
    </div>
  );
}

/** Pick is a choice that is in the address. */
export function Pick({ name, label, options }: { name: string; label: string; options: readonly string[] }) {
  const [params, setParams] = useSearchParams();
  return (
    <div style={{ width: '9rem' }}>
      <FormSelect aria-label={label} value={params.get(name) ?? ''} onChange={(_, v) => setParams((p) => (v ? p.set(name, v) : p.delete(name), p), { replace: true })}>
        <FormSelectOption value="" label={`${label}: any`} />
        {options.map((o) => <FormSelectOption key={o} value={o} label={o} />)}
      </FormSelect>
    </div>
  );
}

/** usePicked keeps the rows that contain the word in the address. */
export function usePicked<T>(rows: readonly T[] | undefined, text: (row: T) => string): T[] | undefined {
  const word = useSearchParams()[0].get('q')?.toLowerCase();
  return rows && (word ? rows.filter((r) => text(r).toLowerCase().includes(word)) : [...rows]);
}

export function Head({ title, of, children }: { title: string; of?: readonly unknown[]; children?: ReactNode }) {
  return (
    <div className="ak-bar">
      <Title headingLevel="h1" size="xl">{title}</Title>
      <Filter />
      <Quiet>{of && <span role="status">{of.length} shown</span>}</Quiet>
      <span className="ak-grow" />
      {children}
    </div>
  );
}

const id = (o: { id: string }) => o.id;

export function EngineImages() {
  const { list: all, failure } = useStream<EngineImage>('engineimages');
  const { may } = useAccess();
  const rows = usePicked(all, (i) => `${i.image} ${i.state}`);
  const [adding, setAdding] = useState(false);
  const [image, setImage] = useState('');
  const [deleting, setDeleting] = useState<EngineImage>();
  const columns: Column<EngineImage>[] = [
    { title: 'Image', cell: (i) => <><Link to={`/engineimages/${encodeURIComponent(i.name)}`}>{i.image}</Link> {i.default && <State of="default" />}</>, by: (i) => i.image },
    { title: 'State', width: 9, cell: (i) => <State of={i.state} title={i.conditions?.map((c) => c.message).filter(Boolean).join('\n')} />, by: (i) => i.state },
    { title: 'Used by', width: 8, cell: (i) => i.refCount, by: (i) => i.refCount },
    { title: 'Unused since', width: 13, cell: (i) => <Time at={i.noRefSince} /> },
    { title: 'Nodes', width: 8, cell: (i) => {
      const nodes = Object.entries(i.nodeDeploymentMap ?? {});
      return <span title={nodes.map(([n, on]) => `${n}: ${on ? 'deployed' : 'not deployed'}`).join('\n')}>{nodes.filter(([, on]) => on).length} of {nodes.length}</span>;
    } },
    { title: 'Version', width: 9, cell: (i) => i.version },
    { title: 'Built', width: 13, cell: (i) => <Time at={i.buildDate} /> },
    { title: 'Actions', width: 7, cell: (i) => may('DELETE', 'engineimages') && !i.default && i.refCount === 0 &&
      <Button variant="link" isInline isDanger onClick={() => setDeleting(i)}>Delete</Button> },
  ];
  return (
    <>
      <Head title="Engine images" of={rows}>{may('POST', 'engineimages') && <Button onClick={() => setAdding(true)}>Add image</Button>}</Head>
      <DataTable label="Engine images" columns={columns} rows={rows} keyOf={id} failure={failure} empty="No engine image fits the filter." />
      {adding && (
        <Dialog title="Add engine image" label="Add" ready={!!image.trim()} done={`${image} is being deployed`} onClose={() => setAdding(false)}
          run={() => call('POST', 'engineimages', { image: image.trim() })}>
          <FormGroup label="Image" fieldId="image"><TextInput id="image" autoFocus value={image} onChange={(_, v) => setImage(v)} /></FormGroup>
        </Dialog>
      )}
      {deleting && (
        <Dialog danger title={`Delete engine image ${deleting.image}?`} label="Delete" done="The engine image is being deleted" onClose={() => setDeleting(undefined)}
          run={() => call('DELETE', path('engineimages', deleting))}>
          No volume uses it. Its programs are removed from every node; volumes cannot be upgraded to it any more.
        </Dialog>
      )}
    </>
  );
}

const engines = (m: InstanceManager) => processesOf(m).engines.length;
const replicas = (m: InstanceManager) => processesOf(m).replicas.length;

export function InstanceManagers() {
  const { data, error } = useQuery({ queryKey: ['instancemanagers'], queryFn: () => list<InstanceManager>('instancemanagers'), refetchInterval: 5000 });
  const rows = usePicked(data, (m) => `${m.name} ${m.nodeID} ${m.image} ${m.managerType} ${m.currentState}`);
  const columns: Column<InstanceManager>[] = [
    { title: 'Name', cell: (m) => m.name, by: (m) => m.name },
    { title: 'State', width: 8, cell: (m) => <State of={m.currentState} />, by: (m) => m.currentState },
    { title: 'Type', width: 6, cell: (m) => m.managerType, by: (m) => m.managerType },
    { title: 'Node', width: 10, cell: (m) => m.nodeID, by: (m) => m.nodeID },
    { title: 'Engines', width: 7, cell: (m) => <span title={processesOf(m).engines.join('\n')}>{engines(m)}</span>, by: engines },
    { title: 'Replicas', width: 7, cell: (m) => <span title={processesOf(m).replicas.join('\n')}>{replicas(m)}</span>, by: replicas },
    { title: 'Waits for', wrap: true, cell: (m) => (m.waitsFor ?? []).join('; ') || '–' },
    { title: 'Image', cell: (m) => <span title={m.image}>{m.image}</span>, by: (m) => m.image },
  ];
  return (
    <>
      <Head title="Instance managers" of={rows} />
      <DataTable label="Instance managers" columns={columns} rows={rows} keyOf={id} failure={error?.message} empty="No instance manager fits the filter." />
    </>
  );
}

export function Orphans() {
  const { list: all, failure } = useStream<Orphan>('orphans');
  const { may } = useAccess();
  const rows = usePicked(all, (o) => `${o.name} ${o.nodeID} ${Object.values(o.parameters ?? {}).join(' ')}`);
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [deleting, setDeleting] = useState(false);
  const parameter = (name: string) => (o: Orphan) => o.parameters?.[name] ?? '';
  const columns: Column<Orphan>[] = [
    { title: 'Name', cell: (o) => o.name, by: (o) => o.name },
    { title: 'Type', width: 10, cell: (o) => o.orphanType, by: (o) => o.orphanType },
    { title: 'Node', width: 10, cell: (o) => o.nodeID, by: (o) => o.nodeID },
    { title: 'Disk', cell: (o) => parameter('DiskPath')(o) || '–', by: parameter('DiskPath') },
    { title: 'Directory or process', cell: (o) => parameter('DataName')(o) || parameter('InstanceName')(o) || '–' },
  ];
  const picked = [...selected].filter((key) => all?.some((o) => o.id === key));
  return (
    <>
      <Head title="Orphans" of={rows}>
        {may('DELETE', 'orphans') && <Button variant="danger" isDisabled={picked.length === 0} onClick={() => setDeleting(true)}>Delete…</Button>}
      </Head>
      <DataTable label="Orphans" columns={columns} rows={rows} keyOf={id} failure={failure} selected={may('DELETE', 'orphans') ? { keys: selected, onChange: setSelected } : undefined}
        empty="There are no orphans: every directory and process on the nodes belongs to an object." />
      {deleting && (
        <Dialog danger title={`Delete ${plural(picked.length, 'orphan')} and what it stands for?`} label="Delete" done="The orphans are being deleted"
          onClose={() => setDeleting(false)} run={() => Promise.all(picked.map((key) => call('DELETE', path('orphans', { id: key }))))}>
          The data of these directories are removed from the disks, and these processes end:
          <ul className="ak-list">{picked.map((key) => <li key={key} className="ak-mono">{key}</li>)}</ul>
        </Dialog>
      )}
    </>
  );
}

const last = (e: KubernetesEvent) => e.lastTimestamp ?? e.eventTime ?? e.metadata.creationTimestamp;

const first = (e: KubernetesEvent) => e.firstTimestamp ?? e.eventTime ?? e.metadata.creationTimestamp;
const sourceOf = (e: KubernetesEvent) => e.source?.component || e.reportingComponent || '';

/** newest are events, the last first. */
export const newest = (events: readonly Event[] | undefined) =>
  events && [...events].sort((a, b) => last(b.event).localeCompare(last(a.event)));

export const conditionColumns: Column<[string, Condition]>[] = [
  { title: 'Condition', width: 14, cell: ([name]) => name },
  { title: 'Status', width: 6, cell: ([, c]) => c.status },
  { title: 'Reason', width: 12, cell: ([, c]) => c.reason || '–' },
  { title: 'Message', wrap: true, cell: ([, c]) => c.message || '–' },
  { title: 'Since', width: 12, cell: ([, c]) => <Time at={c.lastTransitionTime} /> },
];

/** place is where the page of an event's object is. */
const place: Record<string, (name: string) => string> = {
  Volume: (name) => `/volumes/${encodeURIComponent(name)}`, Engine: (name) => `/volumes/${volumeOf(name)}`, Replica: (name) => `/volumes/${volumeOf(name)}`,
  Node: (name) => `/nodes/${encodeURIComponent(name)}`,
  BackingImage: (name) => `/backingimages/${encodeURIComponent(name)}`, BackingImageDataSource: (name) => `/backingimages/${encodeURIComponent(name)}`,
};
const volumeOf = (name: string) => encodeURIComponent(name.replace(/-[er]-[^-]+$/, ''));

export const eventColumns: Column<Event>[] = [
  { title: 'Last seen', width: 12, cell: (e) => <Time at={last(e.event)} />, by: (e) => last(e.event) },
  { title: 'Type', width: 7, cell: (e) => <State of={e.eventType} />, by: (e) => e.eventType },
  { title: 'Kind', width: 9, cell: (e) => e.event.involvedObject.kind, by: (e) => e.event.involvedObject.kind },
  { title: 'Name', width: 14, cell: (e) => {
    const { kind, name } = e.event.involvedObject;
    const to = place[kind]?.(name);
    return to ? <Link to={to} title={name}>{name}</Link> : <span title={name}>{name}</span>;
  }, by: (e) => e.event.involvedObject.name },
  { title: 'Reason', width: 11, cell: (e) => e.event.reason, by: (e) => e.event.reason },
  { title: 'Count', width: 5, cell: (e) => e.event.count ?? 1, by: (e) => e.event.count ?? 1 },
  { title: 'Message', wrap: true, cell: (e) => e.event.message },
];

const [lastSeen, ...others] = eventColumns;
/** allColumns are what the page of events has room for. */
const allColumns: Column<Event>[] = [...(lastSeen ? [lastSeen] : []),
  { title: 'First seen', width: 12, cell: (e) => <Time at={first(e.event)} />, by: (e) => first(e.event) }, ...others,
  { title: 'Source', width: 12, cell: (e) => sourceOf(e.event) || '–', by: (e) => sourceOf(e.event) }];

export function Events() {
  const { list: all, failure } = useStream<Event>('events');
  const rows = newest(usePicked(all, (e) => `${e.event.involvedObject.kind} ${e.event.involvedObject.name} ${e.event.reason} ${e.event.message} ${e.eventType} ${sourceOf(e.event)}`));
  return (
    <>
      <Head title="Events" of={rows}><Quiet>Kubernetes forgets events after an hour.</Quiet></Head>
      <DataTable label="Events" columns={allColumns} rows={rows} keyOf={id} failure={failure} empty="No event of the last hour fits the filter." />
    </>
  );
}

export const NotFound = () => (
  <>
    <Title headingLevel="h1" size="xl">There is no such page</Title>
    <p>The address may be of another version. <Link to="/dashboard">To the dashboard</Link></p>
  </>
);
