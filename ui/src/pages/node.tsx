import { Button, Title } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useParams } from 'react-router';
import { act, list } from '../api/client';
import { useStream } from '../api/stream';
import type * as gen from '../api/types.gen';
import type { EngineImage, InstanceManager, Node, Volume } from '../api/wire';
import { Bytes, Dialog, Facts, Section, State, Time, Why } from '../components/basics';
import { type Column, DataTable } from '../components/table';
import { plural } from '../format';
import { nodeState, processesOf, replicaSizes, spaceOf } from '../health';
import { conditionColumns } from './lists';
import { Space } from './nodes';
import { useCan } from './volumeactions';

interface Placed {
  volume: Volume;
  replica: gen.Replica;
}

const others = (p: Placed) => (p.volume.replicas ?? []).filter((r) => r.name !== p.replica.name && !r.failedAt && r.hostId && (p.volume.state !== 'attached' || r.mode === 'RW')).length;

function Replicas({ of: n, volumes }: { of: Node; volumes: readonly Volume[] | undefined }) {
  const can = useCan();
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [removing, setRemoving] = useState<Placed[]>();
  const rows = volumes?.flatMap((volume) => (volume.replicas ?? []).filter((r) => r.hostId === n.name).map((replica) => ({ volume, replica })));
  const disk = (p: Placed) => Object.entries(n.disks ?? {}).find(([, d]) => d.diskUUID === p.replica.diskID)?.[0] ?? p.replica.diskPath;
  const columns: Column<Placed>[] = [
    { title: 'Replica', cell: (p) => p.replica.name, by: (p) => p.replica.name },
    { title: 'Volume', cell: (p) => <Link to={`/volumes/${encodeURIComponent(p.volume.name)}`}>{p.volume.name}</Link>, by: (p) => p.volume.name },
    { title: 'State', width: 8, cell: (p) => <State of={p.replica.failedAt ? 'ERR' : p.replica.mode || (p.replica.running ? 'running' : 'stopped')} /> },
    { title: 'Disk', cell: disk, by: disk },
    { title: 'Size', width: 7, cell: (p) => <Bytes of={p.volume.size} />, by: (p) => Number(p.volume.size) },
    { title: 'Other copies', width: 8, cell: others, by: others },
    { title: 'Failed', width: 12, cell: (p) => <Time at={p.replica.failedAt} /> },
  ];
  const picked = (rows ?? []).filter((p) => selected.has(p.replica.name));
  // The last good copy of a volume is removed on the page of the volume alone, which asks for its name.
  const may = picked.length > 0 && picked.every((p) => can(p.volume, 'replicaRemove'));
  const last = picked.filter((p) => others(p) === 0);
  return (
    <Section title="Replicas" actions={may && (
      <><span className="ak-grow" /><Button variant="danger" size="sm" isAriaDisabled={last.length > 0}
        title={last.length > 0 ? `The only copy of ${last.map((p) => p.volume.name).join(', ')} is among them` : undefined} onClick={() => setRemoving(picked)}>Remove…</Button></>
    )}>
      <DataTable label="Replicas" columns={columns} rows={rows} keyOf={(p) => p.replica.name} selected={{ keys: selected, onChange: setSelected }} sortKey="replicas"
        empty="No volume has a replica here." />
      {removing && (
        <Dialog danger title={`Remove ${removing.length === 1 ? `replica ${removing[0]?.replica.name}` : `${removing.length} replicas`} of ${n.name}?`} label="Remove" done="The replicas are being removed"
          onClose={() => setRemoving(undefined)} run={async () => {
            for (const p of removing) await act('volumes', p.volume.id, 'replicaRemove', { name: p.replica.name });
            setSelected(new Set());
          }}>
          Their copies are lost. Each volume has others, and a new copy is built elsewhere, or here if the node may have it:
          <ul className="ak-list">{removing.map((p) => <li key={p.replica.name}>{p.volume.name}: {others(p)} other {others(p) === 1 ? 'copy' : 'copies'}</li>)}</ul>
        </Dialog>
      )}
    </Section>
  );
}

/** Programs are what the system runs on a node. */
function Programs({ of: n }: { of: Node }) {
  const images = useStream<EngineImage>('engineimages').list;
  const { data, error } = useQuery({ queryKey: ['instancemanagers'], queryFn: () => list<InstanceManager>('instancemanagers'), refetchInterval: 5000 });
  const rows = data && [
    ...data.filter((m) => m.nodeID === n.name).map((m) => {
      const p = processesOf(m);
      return { name: m.name, kind: `instance manager (${m.managerType})`, state: m.currentState, image: m.image, runs: `${plural(p.engines.length, 'engine')}, ${plural(p.replicas.length, 'replica')}`,
        waits: (m.waitsFor ?? []).join('; ') };
    }),
    ...(images ?? []).map((i) => ({ name: i.name, kind: 'engine image', state: i.nodeDeploymentMap?.[n.name] ? 'deployed' : 'deploying', image: i.image, runs: '', waits: '' })),
  ];
  return (
    <Section title="Programs">
      <DataTable label="Programs" rows={rows} keyOf={(r) => r.name} failure={error?.message} empty="The system runs nothing here." sortKey="programs" columns={[
        { title: 'Name', cell: (r) => r.name, by: (r) => r.name },
        { title: 'Kind', width: 13, cell: (r) => r.kind, by: (r) => r.kind },
        { title: 'State', width: 8, cell: (r) => <State of={r.state} />, by: (r) => r.state },
        { title: 'Runs', width: 12, cell: (r) => r.runs || '–' },
        { title: 'Waits for', wrap: true, cell: (r) => r.waits || '–' },
        { title: 'Image', cell: (r) => <span title={r.image}>{r.image}</span> },
      ]} />
    </Section>
  );
}

export function NodePage() {
  const { name = '' } = useParams();
  const { list: all, failure } = useStream<Node>('nodes');
  const volumes = useStream<Volume>('volumes').list;
  const n = all?.find((o) => o.name === name);
  if (!n) {
    return (
      <>
        <Title headingLevel="h1" size="xl">{name}</Title>
        <p role="status">{all ? <>There is no node of this name. <Link to="/nodes">To the nodes</Link></> : (failure ?? 'Loading…')}</p>
      </>
    );
  }
  const conditions = Object.values(n.conditions ?? {}).map((c): [string, typeof c] => [c.type, c]);
  return (
    <>
      <div className="ak-bar">
        <Title headingLevel="h1" size="xl">{n.name}</Title>
        <State of={nodeState(n)} />
        <span className="ak-grow" />
        <Link to="/nodes">Edit it on the page of all nodes</Link>
      </div>
      <Why of={n.waitsFor} danger={nodeState(n) === 'Down'} command={`ankole node describe ${n.name}`} />
      <Section title="Node">
        <Facts of={[['Address', n.address], ['Zone', [n.region, n.zone].filter(Boolean).join(' / ')], ['Tags', (n.tags ?? []).join(', ')],
          ['New replicas may be placed here', n.allowScheduling ? 'yes' : 'no'], ['Being evicted', n.evictionRequested ? 'yes' : 'no'],
          ['Space', <Space of={spaceOf([n], replicaSizes(volumes ?? []))} />]]} />
      </Section>
      <Replicas of={n} volumes={volumes} />
      <Programs of={n} />
      <Section title="Conditions">
        <DataTable label="Conditions" columns={conditionColumns} rows={conditions} keyOf={([type]) => type} empty="The node has no condition." />
      </Section>
    </>
  );
}
