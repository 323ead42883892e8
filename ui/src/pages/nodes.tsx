import { Button, Checkbox, FormGroup, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useSearchParams } from 'react-router';
import { act, call, path } from '../api/client';
import { useStream } from '../api/stream';
import type * as gen from '../api/types.gen';
import type { Node, Volume } from '../api/wire';
import { Bytes, Dialog, Facts, Quiet, State } from '../components/basics';
import { type Entry, Menu } from '../components/choice';
import { type Column, DataTable } from '../components/table';
import { bytes, percent, words } from '../format';
import { devicesOf, explained, nodeState, nodeStates, removable, replicaSizes, type Space as Sums, spaceOf } from '../health';
import { useAccess } from '../session';
import { Head, Pick, usePicked } from './lists';

const cpu = (n: Node) => [n.instanceManagerCPURequest && `${n.instanceManagerCPURequest}m`, n.engineManagerCPURequest && `engine ${n.engineManagerCPURequest}m`,
  n.replicaManagerCPURequest && `replica ${n.replicaManagerCPURequest}m`].filter(Boolean).join(', ');

const copies = (n: Node) => Object.values(n.disks ?? {}).reduce((sum, d) => sum + Object.keys(d.scheduledReplica ?? {}).length, 0);

export const overcommit = (s: Sums) => percent(s.allocated, s.maximum - s.reserved);

/** Space says the sums of a node. */
export const Space = ({ of: s }: { of: Sums }) => <>{explained(s)}; {bytes(s.allocated)} allocated ({overcommit(s)}), {bytes(s.reserved)} reserved</>;

function NodeDialog({ node, onClose }: { node: Node; onClose: () => void }) {
  const [scheduling, setScheduling] = useState(node.allowScheduling);
  const [eviction, setEviction] = useState(node.evictionRequested);
  const [tags, setTags] = useState((node.tags ?? []).join(' '));
  const [im, setIM] = useState(String(node.instanceManagerCPURequest));
  const [engine, setEngine] = useState(String(node.engineManagerCPURequest));
  const [replica, setReplica] = useState(String(node.replicaManagerCPURequest));
  const milli = (id: string, label: string, value: string, set: (v: string) => void) => (
    <FormGroup label={label} fieldId={id}><TextInput id={id} type="number" value={value} onChange={(_, v) => set(v)} /></FormGroup>
  );
  return (
    <Dialog title={`Edit node ${node.name}`} label="Save" done={`Node ${node.name} is changed`} onClose={onClose}
      run={() => call('PUT', path('nodes', node), { allowScheduling: scheduling, evictionRequested: eviction, tags: words(tags), instanceManagerCPURequest: Number(im),
        engineManagerCPURequest: Number(engine), replicaManagerCPURequest: Number(replica) })}>
      <Checkbox id="scheduling" label="New replicas may be placed here" isChecked={scheduling} onChange={(_, on) => setScheduling(on)} />
      <Checkbox id="eviction" label="Evict: rebuild every replica elsewhere" isChecked={eviction} onChange={(_, on) => setEviction(on)} />
      <FormGroup label="Tags" fieldId="tags"><TextInput id="tags" value={tags} onChange={(_, v) => setTags(v)} /></FormGroup>
      {milli('im', 'Instance Manager CPU (Milli)', im, setIM)}
      {milli('engine', 'Engine Manager CPU (Milli)', engine, setEngine)}
      {milli('replica', 'Replica Manager CPU (Milli)', replica, setReplica)}
      <Quiet>0 leaves it to the setting. A change restarts the instance managers of the node when no volume uses them.</Quiet>
    </Dialog>
  );
}

const wanted = (d: gen.DiskInfo) => ({ path: d.path, diskType: d.diskType, diskDriver: d.diskDriver, allowScheduling: d.allowScheduling,
  evictionRequested: d.evictionRequested, storageReserved: d.storageReserved, tags: d.tags ?? [] });

const gib = 2 ** 30;

function DiskDialog({ node, name, onClose }: { node: Node; name?: string; onClose: () => void }) {
  const disk = name === undefined ? undefined : node.disks?.[name];
  const [key, setKey] = useState(name ?? '');
  const [place, setPlace] = useState(disk?.path ?? '');
  const [scheduling, setScheduling] = useState(disk?.allowScheduling ?? true);
  const [eviction, setEviction] = useState(disk?.evictionRequested ?? false);
  const [reserved, setReserved] = useState(String((disk?.storageReserved ?? 0) / gib));
  const [tags, setTags] = useState((disk?.tags ?? []).join(' '));
  const others = Object.fromEntries(Object.entries(node.disks ?? {}).filter(([n]) => n !== name).map(([n, d]) => [n, wanted(d)]));
  const change = { ...(disk ? wanted(disk) : { diskType: 'filesystem', diskDriver: '' }), path: place, allowScheduling: scheduling, evictionRequested: eviction,
    storageReserved: Math.round(Number(reserved) * gib), tags: words(tags) };
  return (
    <Dialog title={disk ? `Edit disk ${name} of ${node.name}` : `Add a disk to ${node.name}`} label={disk ? 'Save' : 'Add'} ready={!!key && !!place} done={`Disk ${key} is changed`} onClose={onClose}
      run={() => act('nodes', node.id, 'diskUpdate', { disks: { ...others, [key]: change } })}>
      {!disk && <FormGroup label="Name" fieldId="disk"><TextInput id="disk" autoFocus value={key} onChange={(_, v) => setKey(v)} /></FormGroup>}
      {!disk && <FormGroup label="Directory, the mount point of the disk" fieldId="path"><TextInput id="path" value={place} onChange={(_, v) => setPlace(v)} /></FormGroup>}
      <Checkbox id="scheduling" label="New replicas may be placed here" isChecked={scheduling} onChange={(_, on) => setScheduling(on)} />
      <Checkbox id="eviction" label="Evict: rebuild every replica elsewhere" isChecked={eviction} onChange={(_, on) => setEviction(on)} />
      <FormGroup label="Reserved for others, in GiB" fieldId="reserved"><TextInput id="reserved" type="number" value={reserved} onChange={(_, v) => setReserved(v)} /></FormGroup>
      <FormGroup label="Tags" fieldId="tags"><TextInput id="tags" value={tags} onChange={(_, v) => setTags(v)} /></FormGroup>
    </Dialog>
  );
}

/** images are the backing images that have a copy on a disk. */
const images = (d: gen.DiskInfo) => Object.keys(d.scheduledBackingImage ?? {}).sort();

type Doing = { what: 'node' | 'disk' | 'add' | 'remove' | 'delete'; node: Node; disk?: string };

function Disks({ node, sizes, edit, start }: { node: Node; sizes: Map<string, number>; edit: boolean; start: (d: Doing) => void }) {
  const columns: Column<[string, gen.DiskInfo]>[] = [
    { title: 'Disk', cell: ([name, d]) => <span title={`UUID ${d.diskUUID}`}>{name}</span> },
    { title: 'State', width: 9, cell: ([, d]) => {
      const wrong = Object.values(d.conditions ?? {}).filter((c) => c.status !== 'True');
      return <State of={wrong.length ? 'Unschedulable' : d.allowScheduling ? 'Schedulable' : 'Disabled'} title={wrong.map((c) => `${c.type}: ${c.message}`).join('\n') || undefined} />;
    } },
    { title: 'Devices', width: 6.5, cell: ([, d]) => {
      const devices = devicesOf(d);
      return devices ? <State of={devices.verdict} title={`SMART, ${d.healthDataLastCollectedAt}\n${devices.said}`} /> : '–';
    } },
    { title: 'Path', cell: ([, d]) => <span className="ak-mono" title={d.path}>{d.path}</span> },
    { title: 'Replicas', width: 6, cell: ([, d]) => Object.keys(d.scheduledReplica ?? {}).length },
    { title: 'Images', width: 5.5, cell: ([, d]) => <span title={images(d).join('\n')}>{images(d).length}</span> },
    { title: 'Used', width: 6.5, cell: ([, d]) => <span title={explained(spaceOf([{ disks: { d } }], sizes))}>{bytes(d.storageMaximum - d.storageAvailable)}</span> },
    { title: 'Free', width: 6.5, cell: ([, d]) => <Bytes of={d.storageAvailable} /> },
    { title: 'Size', width: 6.5, cell: ([, d]) => <Bytes of={d.storageMaximum} /> },
    { title: 'Reserved', width: 6.5, cell: ([, d]) => <Bytes of={d.storageReserved} /> },
    { title: 'Allocated', width: 6.5, cell: ([, d]) => <Bytes of={d.storageScheduled} /> },
    { title: 'Tags', width: 5, cell: ([, d]) => (d.tags ?? []).join(', ') || '–' },
    { title: 'Actions', width: 8, cell: ([name, d]) => edit && (
      <>
        <Button variant="link" isInline aria-label={`Edit disk ${name}`} onClick={() => start({ what: 'disk', node, disk: name })}>Edit</Button>{' '}
        {removable(d) &&
          <Button variant="link" isInline isDanger aria-label={`Remove disk ${name}`} onClick={() => start({ what: 'remove', node, disk: name })}>Remove</Button>}
      </>
    ) },
  ];
  return <DataTable label={`Disks of ${node.name}`} columns={columns} rows={Object.entries(node.disks ?? {}).sort()} keyOf={([name]) => name} empty="The node has no disk; add one." />;
}

export function Nodes() {
  const { list: all, failure } = useStream<Node>('nodes');
  const volumes = useStream<Volume>('volumes').list ?? [];
  const { may } = useAccess();
  const [shut, setShut] = useState<Set<string>>(new Set());
  const [doing, setDoing] = useState<Doing>();
  const state = useSearchParams()[0].get('state');
  const rows = usePicked(all?.filter((n) => !state || nodeState(n) === state), (n) => `${n.name} ${n.address} ${nodeState(n)} ${n.zone} ${n.region} ${(n.tags ?? []).join(' ')} ${Object.values(n.disks ?? {}).flatMap((d) => d.tags ?? []).join(' ')}`);
  const sizes = replicaSizes(volumes);
  const space = (n: Node) => spaceOf([n], sizes);
  const entries = (n: Node): Entry[] => [
    ...(may('PUT', 'nodes') ? [{ name: 'Edit node…', run: () => setDoing({ what: 'node', node: n }) }] : []),
    ...(may('diskUpdate', 'nodes') ? [{ name: 'Add disk…', run: () => setDoing({ what: 'add', node: n }) }] : []),
    ...(may('DELETE', 'nodes') ? [{ name: 'Remove node…', danger: true, run: () => setDoing({ what: 'delete', node: n }),
      why: nodeState(n) === 'Down' ? undefined : 'The node is in the cluster; remove it from Kubernetes first' }] : []),
  ];
  const columns: Column<Node>[] = [
    { title: 'Node', cell: (n) => (
      <>
        <Button variant="plain" size="sm" aria-expanded={!shut.has(n.name)} aria-label={`Disks of ${n.name}`}
          onClick={() => setShut((s) => { const next = new Set(s); if (!next.delete(n.name)) next.add(n.name); return next; })}>{shut.has(n.name) ? '▸' : '▾'}</Button>
        {' '}<Link to={`/nodes/${encodeURIComponent(n.name)}`}>{n.name}</Link> <Quiet>{n.address}</Quiet>
      </>
    ), by: (n) => n.name },
    { title: 'State', width: 10, cell: (n) => <State of={nodeState(n)} title={(n.waitsFor ?? []).join('\n') || undefined} />, by: (n) => nodeStates.indexOf(nodeState(n)) },
    { title: 'Zone', width: 6, cell: (n) => [n.region, n.zone].filter(Boolean).join(' / ') || '–', by: (n) => n.zone },
    { title: 'Replicas', width: 7, cell: copies, by: copies },
    { title: 'Used', width: 11, cell: (n) => <span title={explained(space(n))}>{bytes(space(n).used)} ({percent(space(n).used, space(n).maximum)})</span>, by: (n) => space(n).used },
    { title: 'Size', width: 7, cell: (n) => <Bytes of={space(n).maximum} />, by: (n) => space(n).maximum },
    { title: 'Allocated', width: 9, cell: (n) => <span title="Allocated of what is not reserved">{bytes(space(n).allocated)} ({overcommit(space(n))})</span>, by: (n) => space(n).allocated },
    { title: 'CPU request', width: 7.5, cell: (n) => cpu(n) || <Quiet>setting</Quiet> },
    { title: 'Tags', width: 5, cell: (n) => (n.tags ?? []).join(', ') || '–' },
    { title: 'Actions', width: 5.5, cell: (n) => <Menu label={`Actions of ${n.name}`} icon="⋮" entries={entries(n)} /> },
  ];
  return (
    <>
      <Head title="Nodes" of={rows}><Pick name="state" label="State" options={nodeStates} /></Head>
      <DataTable label="Nodes" columns={columns} rows={rows} keyOf={(n) => n.id} failure={failure} empty="No node fits the filter."
        below={(n) => !shut.has(n.name) && (
          <>
            <Disks node={n} sizes={sizes} edit={may('diskUpdate', 'nodes')} start={setDoing} />
            {nodeState(n) !== 'Schedulable' && (
              <Facts of={Object.values(n.conditions ?? {}).filter((c) => c.status !== 'True' && c.message).map((c) => [c.type, c.message])} />
            )}
          </>
        )} />
      {doing?.what === 'node' && <NodeDialog node={doing.node} onClose={() => setDoing(undefined)} />}
      {(doing?.what === 'disk' || doing?.what === 'add') && <DiskDialog node={doing.node} name={doing.disk} onClose={() => setDoing(undefined)} />}
      {doing?.what === 'remove' && (
        <Dialog danger title={`Remove disk ${doing.disk} of ${doing.node.name}?`} label="Remove" done="The disk is removed" onClose={() => setDoing(undefined)}
          run={() => act('nodes', doing.node.id, 'diskUpdate', { disks: Object.fromEntries(Object.entries(doing.node.disks ?? {}).filter(([n]) => n !== doing.disk).map(([n, d]) => [n, wanted(d)])) })}>
          No replica and no backing image is on it. Its files stay where they are.
        </Dialog>
      )}
      {doing?.what === 'delete' && (
        <Dialog danger title={`Remove node ${doing.node.name}?`} label="Remove" done="The node is removed" onClose={() => setDoing(undefined)} run={() => call('DELETE', path('nodes', doing.node))}>
          {copies(doing.node) > 0 ? `${copies(doing.node)} replicas are placed on it; their copies are given up.` : 'No replica is placed on it.'}
        </Dialog>
      )}
    </>
  );
}
