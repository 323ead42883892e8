import { Alert, Title } from '@patternfly/react-core';
import { Link } from 'react-router';
import { useStream } from '../api/stream';
import type { Event, Node, Volume } from '../api/wire';
import { fullest, type Line, mostNodes, promiseParts, spaceParts } from '../charts';
import { Bytes, Quiet, Section, State } from '../components/basics';
import { Bars, Donut } from '../components/lazycharts';
import { type Column, DataTable } from '../components/table';
import { bytes, percent } from '../format';
import { healthOf, healths, nodeState, nodeStates, replicaSizes, type Space, spaceOf } from '../health';
import { eventColumns, newest } from './lists';
import { overcommit } from './nodes';

function Counts<T extends string>({ classes, of, total, to }: { classes: readonly T[]; of: (c: T) => number; total: [string, number]; to: (c: T | '') => string }) {
  return (
    <ul className="ak-counts">
      <li><Link to={to('')}><b className="ak-num">{total[1]}</b>{total[0]}</Link></li>
      {classes.map((c) => <li key={c}><Link to={to(c)}><b className="ak-num">{of(c)}</b>{c}</Link></li>)}
    </ul>
  );
}

function Stack({ of: s }: { of: Space }) {
  const part = (n: number) => ({ width: `${s.maximum ? (100 * n) / s.maximum : 0}%` });
  return (
    <div className="ak-stack" role="img" aria-label={`${bytes(s.volumes)} by volumes, ${bytes(s.others)} by others, ${bytes(s.available)} free`}>
      <span className="ak-c1" style={part(s.volumes)} /><span className="ak-c2" style={part(s.others)} /><span className="ak-c3" style={part(s.available)} />
    </div>
  );
}

const key = (css: string, name: string) => <><span className={`ak-key ${css}`} />{name}</>;

const columns: Column<Line>[] = [
  { title: 'Node', width: 10, cell: (l) => l.name },
  { title: 'Size', width: 7, cell: (l) => <Bytes of={l.maximum} /> },
  { title: 'By volumes', width: 8, cell: (l) => <Bytes of={l.volumes} /> },
  { title: 'By others', width: 8, cell: (l) => <Bytes of={l.others} /> },
  { title: 'Free', width: 7, cell: (l) => <Bytes of={l.available} /> },
  { title: 'Share', cell: (l) => <Stack of={l} /> },
  { title: 'Reserved', width: 7, cell: (l) => <Bytes of={l.reserved} /> },
  { title: 'Allocated', width: 8, cell: (l) => <Bytes of={l.allocated} /> },
  { title: 'Committed', width: 8, cell: (l) => overcommit(l) },
];

export function Dashboard() {
  const volumes = useStream<Volume>('volumes');
  const nodes = useStream<Node>('nodes');
  const events = useStream<Event>('events').list;
  const v = volumes.list ?? [], n = nodes.list ?? [];
  const sizes = replicaSizes(v);
  const own: Line[] = n.map((node) => ({ name: node.name, ...spaceOf([node], sizes) }));
  const sum = spaceOf(n, sizes);
  const lines = [...own];
  if (lines.length > 1) lines.push({ name: 'All', ...sum });
  const wrong = v.filter((x) => ['Faulted', 'Degraded', 'In progress'].includes(healthOf(x)) || (healthOf(x) === 'Detached' && (x.waitsFor ?? []).length > 0));
  const waiting = n.filter((x) => (x.waitsFor ?? []).length > 0);
  return (
    <>
      <div className="ak-bar"><Title headingLevel="h1" size="xl">Dashboard</Title></div>
      {(volumes.failure ?? nodes.failure) && !volumes.list && <Alert component="div" isInline variant="danger" title="Not everything can be shown">{volumes.failure ?? nodes.failure}</Alert>}
      <Section title="Volumes">
        <Counts classes={healths} of={(c) => v.filter((x) => healthOf(x) === c).length} total={['volumes', v.length]} to={(c) => `/volumes${c && `?state=${encodeURIComponent(c)}`}`} />
      </Section>
      {wrong.length > 0 && (
        <Section title="Volumes that wait for something">
          <DataTable label="Volumes that wait" rows={wrong} keyOf={(x) => x.id} empty="" columns={[
            { title: 'Volume', width: 16, cell: (x) => <Link to={`/volumes/${encodeURIComponent(x.name)}`}>{x.name}</Link> },
            { title: 'State', width: 9, cell: (x) => <State of={healthOf(x).toLowerCase()} /> },
            { title: 'Why', wrap: true, cell: (x) => (x.waitsFor ?? []).join('; ') || `${x.state}, ${x.robustness}` },
          ]} />
        </Section>
      )}
      <Section title="Nodes">
        <Counts classes={nodeStates} of={(c) => n.filter((x) => nodeState(x) === c).length} total={['nodes', n.length]} to={(c) => `/nodes${c && `?state=${c}`}`} />
      </Section>
      {waiting.length > 0 && (
        <Section title="Nodes that wait for something">
          <DataTable label="Nodes that wait" rows={waiting} keyOf={(x) => x.id} empty="" sortKey="waiting" columns={[
            { title: 'Node', width: 16, cell: (x) => <Link to={`/nodes/${encodeURIComponent(x.name)}`}>{x.name}</Link> },
            { title: 'State', width: 9, cell: (x) => <State of={nodeState(x)} /> },
            { title: 'Why', wrap: true, cell: (x) => (x.waitsFor ?? []).join('; ') },
          ]} />
        </Section>
      )}
      <Section title="Storage">
        <p className="ak-quiet">
          {key('ak-c1', 'By volumes')}: what engines say their replicas take. {key('ak-c2', 'By others')}: what else is on the file systems.{' '}
          {key('ak-c3', 'Free')}: the rest; the three are the size. Reserved is kept for others, allocated is promised to replicas that may not be full yet, and committed is
          allocated in per cent of what is not reserved.
        </p>
        {sum.maximum > 0 && (
          <div className="ak-charts">
            <Donut name="space" title="Used and free storage" middle={percent(sum.used, sum.maximum)} below="used" parts={spaceParts(sum)} />
            <Donut name="promises" title="Promised storage" middle={overcommit(sum)} below="committed" parts={promiseParts(sum)} />
          </div>
        )}
        {own.length > 1 && <Bars lines={fullest(own)} />}
        {own.length > mostNodes && <Quiet>The {mostNodes} fullest of {own.length} nodes.</Quiet>}
        <DataTable label="Storage" columns={columns} rows={nodes.list && lines} keyOf={(l) => l.name} empty="No node has a disk." />
        {lines.length > 0 && <Quiet>Of all, {percent(lines.at(-1)?.used ?? 0, lines.at(-1)?.maximum ?? 0)} are used.</Quiet>}
      </Section>
      <Section title="Latest events" actions={<Link to="/events">All events</Link>}>
        <DataTable label="Latest events" columns={eventColumns} rows={newest(events)?.slice(0, 15)} keyOf={(e) => e.id} empty="There was no event in the last hour." sortKey="events" />
      </Section>
    </>
  );
}
