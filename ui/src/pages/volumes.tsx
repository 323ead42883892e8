import { Button, Title } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useSearchParams } from 'react-router';
import { useStream } from '../api/stream';
import type { EngineImage, Volume } from '../api/wire';
import { Bytes, Quiet, State, Time } from '../components/basics';
import { Menu } from '../components/choice';
import { type Optional, useColumns } from '../components/columns';
import { DataTable } from '../components/table';
import { healthOf, healths, redundancies, redundancyOf, workOf } from '../health';
import { useAccess } from '../session';
import { CreateVolume } from './createvolume';
import { Filter, Pick } from './lists';
import { type Doing, useEntries, VolumeDialog } from './volumeactions';

const colour: Record<string, string> = { Healthy: 'healthy', Degraded: 'degraded', Faulted: 'faulted', Detached: 'detached' };

export function HealthLabel({ of: v }: { of: Volume }) {
  const health = healthOf(v);
  return (
    <>
      <State of={colour[health] ?? v.state} title={(v.waitsFor ?? []).join('\n') || undefined} />
      {workOf(v).map((work) => <Quiet key={work}> {work}</Quiet>)}
      {v.image !== v.currentImage && v.currentImage && <Quiet> upgrading</Quiet>}
    </>
  );
}

const running = (v: Volume) => (v.replicas ?? []).filter((r) => r.mode === 'RW' || (v.state === 'detached' && !r.failedAt && r.hostId)).length;
const actual = (v: Volume) => Math.max(0, ...(v.controllers ?? []).map((c) => Number(c.actualSize) || 0));
const nodeOf = (v: Volume) => (v.controllers ?? []).find((c) => c.hostId)?.hostId ?? '';
const claimOf = (v: Volume) => (v.kubernetesStatus?.pvcName ? `${v.kubernetesStatus.namespace}/${v.kubernetesStatus.pvcName}` : '');
const podsOf = (v: Volume) => (v.kubernetesStatus?.lastPodRefAt ? [] : (v.kubernetesStatus?.workloadsStatus ?? [])).map((w) => w.podName).join(', ');

const columns: Optional<Volume>[] = [
  { title: 'Name', fixed: true, cell: (v) => <Link to={`/volumes/${encodeURIComponent(v.name)}`} title={v.name}>{v.name}</Link>, by: (v) => v.name },
  { title: 'State', fixed: true, width: 12, cell: (v) => <HealthLabel of={v} />, by: (v) => healths.indexOf(healthOf(v)) },
  { title: 'Size', width: 6.5, cell: (v) => <Bytes of={v.size} />, by: (v) => Number(v.size) },
  { title: 'Takes', width: 6.5, cell: (v) => <Bytes of={actual(v)} />, by: actual },
  { title: 'Replicas', width: 7.5, cell: (v) => `${running(v)} of ${v.numberOfReplicas}`, by: (v) => v.numberOfReplicas },
  { title: 'Attached to', width: 9, cell: (v) => nodeOf(v) || '–', by: nodeOf },
  { title: 'Locality', width: 8, cell: (v) => v.dataLocality, by: (v) => v.dataLocality },
  { title: 'Claim', cell: (v) => <span title={claimOf(v)}>{claimOf(v) || '–'}</span>, by: claimOf },
  { title: 'Pods', cell: (v) => <span title={podsOf(v)}>{podsOf(v) || '–'}</span>, by: podsOf },
  { title: 'Created', width: 12, cell: (v) => <Time at={v.created} />, by: (v) => v.created },
  { title: 'Redundancy', away: true, width: 9, cell: redundancyOf, by: (v) => redundancies.indexOf(redundancyOf(v)) },
  { title: 'Engine image', away: true, cell: (v) => <span title={v.currentImage || v.image}>{v.currentImage || v.image}</span>, by: (v) => v.currentImage || v.image },
  { title: 'Backing image', away: true, width: 10, cell: (v) => (v.backingImage ? <Link to={`/backingimages/${encodeURIComponent(v.backingImage)}`}>{v.backingImage}</Link> : '–'), by: (v) => v.backingImage },
  { title: 'Access', away: true, width: 6, cell: (v) => v.accessMode, by: (v) => v.accessMode },
  { title: 'Encrypted', away: true, width: 7.5, cell: (v) => (v.encrypted ? 'yes' : 'no'), by: (v) => String(v.encrypted) },
  { title: 'Backup target', away: true, width: 10, cell: (v) => v.backupTargetName, by: (v) => v.backupTargetName },
  { title: 'Last backup', away: true, width: 12, cell: (v) => <Time at={v.lastBackupAt} />, by: (v) => v.lastBackupAt },
  { title: 'PersistentVolume', away: true, cell: (v) => v.kubernetesStatus?.pvName || '–', by: (v) => v.kubernetesStatus?.pvName ?? '' },
  { title: 'Tags', away: true, cell: (v) => [...(v.nodeSelector ?? []), ...(v.diskSelector ?? [])].join(', ') || '–' },
];

const text = (v: Volume) => [v.name, claimOf(v), podsOf(v), v.kubernetesStatus?.pvName, ...(v.replicas ?? []).map((r) => r.hostId),
  ...(v.nodeSelector ?? []), ...(v.diskSelector ?? [])].join(' ').toLowerCase();

/** more are filters by what only some ask for. */
const more: Record<string, (v: Volume, defaultImage: string | undefined) => boolean> = {
  'Engine can be upgraded': (v, defaultImage) => !!defaultImage && v.image !== defaultImage,
  'Replica without a place': (v) => v.conditions?.Scheduled?.status === 'False',
  'PersistentVolume: none': (v) => !v.kubernetesStatus?.pvName,
  'PersistentVolume: Bound': (v) => v.kubernetesStatus?.pvStatus === 'Bound',
  'PersistentVolume: Available': (v) => v.kubernetesStatus?.pvStatus === 'Available',
  'PersistentVolume: Released': (v) => v.kubernetesStatus?.pvStatus === 'Released',
  Standby: (v) => v.standby,
  Encrypted: (v) => v.encrypted,
  'Revision counter off': (v) => v.revisionCounterDisabled,
  'Never backed up': (v) => !v.lastBackup,
};

export function Volumes() {
  const { list: all, failure } = useStream<Volume>('volumes');
  const defaultImage = useStream<EngineImage>('engineimages').list?.find((i) => i.default)?.image;
  const [shown, choice] = useColumns('volumes', columns);
  const { may } = useAccess();
  const [params] = useSearchParams();
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [doing, setDoing] = useState<Doing>();
  const [creating, setCreating] = useState(false);
  const entries = useEntries();
  const word = (params.get('q') ?? '').toLowerCase();
  const state = params.get('state'), node = params.get('node'), namespace = params.get('namespace'), redundancy = params.get('redundancy');
  const also = more[params.get('also') ?? ''];
  const rows = all?.filter((v) => (!word || text(v).includes(word)) && (!state || healthOf(v) === state) && (!node || nodeOf(v) === node) &&
    (!namespace || v.kubernetesStatus?.namespace === namespace) && (!redundancy || redundancyOf(v) === redundancy) && (!also || also(v, defaultImage)));
  const picked = (all ?? []).filter((v) => selected.has(v.id));
  const distinct = (f: (v: Volume) => string | undefined) => [...new Set((all ?? []).map(f).filter((x): x is string => !!x))].sort();
  const actions = entries(picked, setDoing);
  return (
    <>
      <div className="ak-bar">
        <Title headingLevel="h1" size="xl">Volumes</Title>
        <Filter label="Name, claim, Pod, tag" />
        <Pick name="state" label="State" options={healths} />
        <Pick name="node" label="Node" options={distinct(nodeOf)} />
        <Pick name="namespace" label="Namespace" options={distinct((v) => v.kubernetesStatus?.namespace)} />
        <Pick name="redundancy" label="Redundancy" options={redundancies} />
        <Pick name="also" label="Also" options={Object.keys(more)} />
        <Quiet>{rows && <span role="status">{rows.length === all?.length ? rows.length : `${rows.length} of ${all?.length}`} shown</span>}</Quiet>
        <span className="ak-grow" />
        {picked.length > 0 && <Quiet>{picked.length} selected</Quiet>}
        {choice}
        <Menu label="Actions" entries={actions} />
        {may('POST', 'volumes') && <Button onClick={() => setCreating(true)}>Create volume</Button>}
      </div>
      <DataTable label="Volumes" columns={shown} rows={rows} keyOf={(v) => v.id} failure={failure} selected={{ keys: selected, onChange: setSelected }}
        empty={all?.length ? 'No volume fits the filters.' : 'There is no volume. Kubernetes makes them for claims of a StorageClass, or create one here.'} />
      {creating && <CreateVolume onClose={() => setCreating(false)} />}
      {doing && picked.length > 0 && <VolumeDialog what={doing} volumes={picked} onClose={() => setDoing(undefined)} />}
    </>
  );
}
