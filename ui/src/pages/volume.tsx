import { Button, Checkbox, FormGroup, Progress, TextInput, Title } from '@patternfly/react-core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useNavigate, useParams } from 'react-router';
import { act, type Collection } from '../api/client';
import { useStream } from '../api/stream';
import type * as gen from '../api/types.gen';
import type { BackingImage, Event, Snapshot, Volume } from '../api/wire';
import { Bytes, Dialog, Facts, Label, Quiet, Section, State, Time, Why } from '../components/basics';
import { Menu } from '../components/choice';
import { type Column, DataTable } from '../components/table';
import { plural } from '../format';
import { useAccess } from '../session';
import { head, type Layer, order } from '../tree';
import { backupFields, BackupFields } from './backupfields';
import { CreateVolume } from './createvolume';
import { Damage } from './damage';
import { fields } from './fields';
import { conditionColumns, eventColumns, newest } from './lists';
import { Rates } from './rates';
import { RestorePoint } from './restorepoint';
import { type Doing, useCan, useEntries, VolumeDialog } from './volumeactions';
import { VolumeJobs } from './volumejobs';
import { HealthLabel } from './volumes';

/** layersOf asks the engine, which knows the head and sizes, and where none runs for the Snapshot objects. */
async function layersOf(v: Volume): Promise<Layer[]> {
  if (v.state === 'attached') {
    const { data } = await act<Collection<Snapshot>>('volumes', v.id, 'snapshotList');
    return data.map((s) => ({ name: s.name, parent: s.parent, removed: s.removed, byUser: s.usercreated, created: s.created, size: Number(s.size),
      labels: s.labels ?? {} }));
  }
  const { data } = await act<Collection<gen.SnapshotCR>>('volumes', v.id, 'snapshotCRList');
  return data.map((s) => ({ name: s.name, parent: s.parent, removed: s.markRemoved, byUser: s.userCreated, created: s.creationTime || s.crCreationTime,
    size: s.size, labels: s.labels ?? {}, note: s.error || (s.readyToUse ? '' : 'not taken yet') }));
}

type Step = { what: 'revert' | 'backup' | 'copy'; layer: Layer } | { what: 'delete'; layers: Layer[] };

function Snapshots({ of: v, start }: { of: Volume; start: (what: Doing) => void }) {
  const can = useCan();
  const { may } = useAccess();
  const client = useQueryClient();
  const key = ['snapshots', v.id];
  const { data, error } = useQuery({ queryKey: [...key, v.state], queryFn: () => layersOf(v), refetchInterval: 10_000 });
  const [step, setStep] = useState<Step>();
  const [system, setSystem] = useState(true);
  const [full, setFull] = useState(false);
  const [labels, setLabels] = useState('');
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const refresh = () => client.invalidateQueries({ queryKey: key });
  const purging = (v.purgeStatus ?? []).filter((p) => p.isPurging);
  const canDelete = v.state === 'attached' ? can(v, 'snapshotDelete') : can(v, 'snapshotCRDelete');
  const rows = data && order(data.filter((l) => system || l.byUser || l.name === head));
  const columns: Column<Layer & { depth: number }>[] = [
    { title: 'Snapshot', cell: (l) => (
      <span style={{ paddingInlineStart: `${l.depth * 1.5}rem` }} title={l.name}>{l.depth > 0 && '└ '}{l.name === head ? <strong>Volume head (now)</strong> : l.name}</span>
    ) },
    { title: 'State', width: 12, cell: (l) => (l.removed ? <Label colour="orange" title="Its space comes back when it is merged into its neighbour">being removed</Label>
      : l.note ? <span title={l.note}>{l.note}</span> : l.name === head ? '–' : l.byUser ? 'by a user' : 'by the system') },
    { title: 'Takes', width: 7, cell: (l) => <Bytes of={l.size} /> },
    { title: 'Created', width: 12, cell: (l) => <Time at={l.created} /> },
    { title: 'Backup', width: 9, cell: (l) => {
      const b = (v.backupStatus ?? []).filter((s) => s.snapshot === l.name).at(-1);
      if (!b) return '–';
      return b.error ? <State of="Error" title={b.error} /> : <State of={b.progress < 100 && b.state !== 'Completed' ? `${b.progress} %` : 'Completed'} />;
    } },
    { title: 'Labels', cell: (l) => Object.entries(l.labels).map(([k, x]) => `${k}=${x}`).join(', ') || '–' },
    { title: 'Actions', width: 17, cell: (l) => l.name !== head && (
      <>
        {can(v, 'snapshotRevert') && !l.removed && (
          <Button variant="link" isInline isAriaDisabled={!v.disableFrontend || v.state !== 'attached'}
            title={v.disableFrontend ? undefined : 'Attach the volume in maintenance mode to revert it'} onClick={() => setStep({ what: 'revert', layer: l })}>Revert</Button>
        )}{' '}
        {can(v, 'snapshotBackup') && !l.removed && <Button variant="link" isInline onClick={() => setStep({ what: 'backup', layer: l })}>Back up</Button>}{' '}
        {may('POST', 'volumes') && !l.removed && !v.standby && <Button variant="link" isInline onClick={() => setStep({ what: 'copy', layer: l })}>Copy</Button>}{' '}
        {canDelete && <Button variant="link" isInline isDanger onClick={() => setStep({ what: 'delete', layers: [l] })}>Delete</Button>}
      </>
    ) },
  ];
  const picked = (rows ?? []).filter((l) => selected.has(l.name) && l.name !== head);
  const remove = async (layers: Layer[]) => {
    for (const l of layers) {
      if (v.state !== 'attached') await act('volumes', v.id, 'snapshotCRDelete', { name: l.name });
      else if (!l.removed) await act('volumes', v.id, 'snapshotDelete', { name: l.name });
    }
    if (v.state === 'attached') await act('volumes', v.id, 'snapshotPurge');
    setSelected(new Set());
    await refresh();
  };
  return (
    <Section title="Snapshots" actions={
      <>
        <Checkbox id="system" label="Those of the system" isChecked={system} onChange={(_, on) => setSystem(on)} />
        <span className="ak-grow" />
        {canDelete && picked.length > 0 && <Button variant="danger" size="sm" onClick={() => setStep({ what: 'delete', layers: picked })}>Delete {plural(picked.length, 'snapshot')}…</Button>}
        {can(v, 'snapshotCRCreate') && !v.standby && <Button variant="secondary" size="sm" onClick={() => start('snapshot')}>Take snapshot</Button>}
      </>
    }>
      {purging.map((p) => <Progress key={p.replica} measureLocation="outside" size="sm" title={`Space of removed snapshots comes back on ${p.replica}`} value={p.progress} />)}
      <DataTable label="Snapshots" columns={columns} rows={rows} keyOf={(l) => l.name} failure={error?.message} empty="There is no snapshot yet."
        selected={canDelete ? { keys: selected, onChange: setSelected } : undefined} />
      {step?.what === 'revert' && (
        <Dialog danger title={`Revert ${v.name} to ${step.layer.name}?`} label="Revert" done={`${v.name} has the content of ${step.layer.name}`} onClose={() => setStep(undefined)}
          run={() => act('volumes', v.id, 'snapshotRevert', { name: step.layer.name }).then(refresh)}>
          What was written after it and is in no other snapshot is lost. Take a snapshot first to keep it.
        </Dialog>
      )}
      {step?.what === 'copy' && <CreateVolume of={v} snapshot={step.layer.name} onClose={() => setStep(undefined)} />}
      {step?.what === 'backup' && (
        <Dialog title={`Back up snapshot ${step.layer.name}?`} label="Back up" done={`Snapshot ${step.layer.name} is being backed up`} onClose={() => setStep(undefined)}
          run={() => act('volumes', v.id, 'snapshotBackup', { name: step.layer.name, ...backupFields(full, labels) })}>
          <p>It goes to backup target {v.backupTargetName || 'default'}. What an earlier backup has there is not sent again.</p>
          <BackupFields full={full} setFull={setFull} labels={labels} setLabels={setLabels} />
        </Dialog>
      )}
      {step?.what === 'delete' && (
        <Dialog danger title={step.layers.length === 1 ? `Delete snapshot ${step.layers[0]?.name}?` : `Delete ${plural(step.layers.length, 'snapshot')}?`} label="Delete"
          done={step.layers.length === 1 ? `Snapshot ${step.layers[0]?.name} is being removed` : 'The snapshots are being removed'} onClose={() => setStep(undefined)} run={() => remove(step.layers)}>
          The volume cannot be reverted to {step.layers.length === 1 ? 'it' : 'them'} any more. The space comes back when they are merged into their neighbours; until then they stay in this list.
          {step.layers.length > 1 && <ul className="ak-list">{step.layers.map((l) => <li key={l.name}>{l.name}</li>)}</ul>}
        </Dialog>
      )}
    </Section>
  );
}

function Replicas({ of: v }: { of: Volume }) {
  const can = useCan();
  const [removing, setRemoving] = useState<gen.Replica>();
  const [sure, setSure] = useState('');
  const columns: Column<gen.Replica>[] = [
    { title: 'Replica', cell: (r) => <span title={r.name}>{r.name}</span>, by: (r) => r.name },
    { title: 'Mode', width: 8, cell: (r) => (r.failedAt ? <State of="ERR" title={`failed at ${r.failedAt}`} /> : r.mode ? <State of={r.mode} /> : r.running ? 'running' : 'stopped') },
    { title: 'Progress', width: 12, cell: (r) => {
      const p = v.rebuildStatus?.find((s) => s.replica === r.name);
      if (p?.error) return <span title={p.error}>{p.error}</span>;
      return p?.isRebuilding ? <Progress aria-label={`Rebuild of ${r.name}`} size="sm" value={p.progress} title={`copied from ${(p.fromReplicaList ?? []).join(', ')}`} /> : '–';
    } },
    { title: 'Node', width: 9, cell: (r) => r.hostId || <Quiet>no place</Quiet>, by: (r) => r.hostId },
    { title: 'Disk', cell: (r) => <span title={r.dataPath}>{r.diskPath || '–'}</span> },
    { title: 'Instance manager', cell: (r) => r.instanceManagerName || '–' },
    { title: 'Failed', width: 12, cell: (r) => <Time at={r.failedAt} /> },
    { title: 'Actions', width: 7, cell: (r) => can(v, 'replicaRemove') && <Button variant="link" isInline isDanger onClick={() => { setSure(''); setRemoving(r); }}>Remove</Button> },
  ];
  const good = (v.replicas ?? []).filter((r) => !r.failedAt && r.name !== removing?.name);
  return (
    <Section title="Replicas">
      <DataTable label="Replicas" columns={columns} rows={v.replicas ?? []} keyOf={(r) => r.name} empty="The volume has no replica." sortKey="replicas" />
      {removing && (
        <Dialog danger title={`Remove replica ${removing.name}?`} label="Remove" ready={good.length > 0 || sure === v.name} done="The replica is being removed" onClose={() => setRemoving(undefined)}
          run={() => act('volumes', v.id, 'replicaRemove', { name: removing.name })}>
          {good.length > 0 ? `Its copy on ${removing.hostId || 'no node'} is lost. ${good.length} other ${good.length === 1 ? 'copy is' : 'copies are'} left; a new one is built elsewhere.`
            : <FormGroup label={`It is the only copy that is left: all data of ${v.name} are lost. Type the volume's name`} fieldId="sure"><TextInput id="sure" value={sure} onChange={(_, x) => setSure(x)} /></FormGroup>}
        </Dialog>
      )}
    </Section>
  );
}

const ticketColumns: Column<gen.Attachment>[] = [
  { title: 'Ticket', cell: (t) => <span title={t.attachmentID}>{t.attachmentID || '(plain)'}</span> },
  { title: 'Type', width: 12, cell: (t) => t.attachmentType },
  { title: 'Node', width: 9, cell: (t) => t.nodeID },
  { title: 'Satisfied', width: 7, cell: (t) => (t.satisfied ? 'yes' : 'no') },
  { title: 'Waits for', wrap: true, cell: (t) => (t.conditions ?? []).map((c) => c.message).filter(Boolean).join('; ') || '–' },
];

/** ImageOf is the image that a volume is made from. */
function ImageOf({ name }: { name: string }) {
  const b = useStream<BackingImage>('backingimages').list?.find((i) => i.name === name);
  return <><Link to={`/backingimages/${encodeURIComponent(name)}`}>{name}</Link>{b && b.virtualSize > 0 && <> (<Bytes of={b.virtualSize} />)</>}</>;
}

/** told are the fields of Change… that stand among the others. */
const told = ['replicaAutoBalance', 'snapshotMaxCount', 'snapshotDataIntegrity', 'backupTargetName', 'accessMode'];

export function VolumePage() {
  const { name = '' } = useParams();
  const { list: all, failure } = useStream<Volume>('volumes');
  const events = useStream<Event>('events').list;
  const [doing, setDoing] = useState<Doing>();
  const client = useQueryClient();
  const navigate = useNavigate();
  const entries = useEntries();
  const v = all?.find((o) => o.name === name);
  if (!v) {
    return (
      <>
        <Title headingLevel="h1" size="xl">{name}</Title>
        <p role="status">{all ? <>There is no volume of this name; it may have been deleted. <Link to="/volumes">To the volumes</Link></> : (failure ?? 'Loading…')}</p>
      </>
    );
  }
  const engine = (v.controllers ?? []).find((c) => c.endpoint) ?? v.controllers?.[0];
  const k = v.kubernetesStatus;
  const own = newest(events?.filter(({ event: { involvedObject: o } }) => o.name === v.name || o.name.startsWith(`${v.name}-e-`) || o.name.startsWith(`${v.name}-r-`)));
  return (
    <>
      <div className="ak-bar">
        <Title headingLevel="h1" size="xl">{v.name}</Title>
        <HealthLabel of={v} />
        {v.standby && <Label colour="blue" title="It takes over the backups of another volume until it is activated">standby</Label>}
        {v.disableFrontend && v.state === 'attached' && !v.standby && <Label colour="orange">maintenance</Label>}
        <span className="ak-grow" />
        <Menu label="Actions" entries={entries([v], setDoing)} />
      </div>
      <Why of={v.waitsFor} danger={v.robustness === 'faulted'} command={`ankole volume describe ${v.name}`} />
      <Damage of={v} />
      <Section title="Volume">
        <Facts of={[['Size', <Bytes of={v.size} />], ['Takes on each replica', <Bytes of={engine?.actualSize} />], ['Attached to', engine?.hostId], ['Endpoint', <span className="ak-mono">{engine?.endpoint || '–'}</span>],
          ['Frontend', v.standby ? 'none (standby)' : v.disableFrontend ? 'none (maintenance)' : v.frontend], ['Replicas wanted', v.numberOfReplicas], ['Data locality', v.dataLocality], ['Access mode', v.accessMode],
          ['Ready for workloads', v.ready ? 'yes' : 'no'], ['Engine image', <span title={v.currentImage}>{v.currentImage || v.image}{v.image !== v.currentImage && v.currentImage ? ` → ${v.image}` : ''}</span>],
          ['Claim', k?.pvcName && `${k.namespace}/${k.pvcName}`], ['PersistentVolume', k?.pvName && `${k.pvName} (${k.pvStatus})`],
          [k?.lastPodRefAt ? 'Last Pods' : 'Pods', (k?.workloadsStatus ?? []).map((w) => `${w.podName} (${[w.podStatus, w.workloadName && `${w.workloadType} ${w.workloadName}`].filter(Boolean).join(', ')})`).join(', ')],
          ['Backing image', v.backingImage && <ImageOf name={v.backingImage} />],
          ['Node tags', (v.nodeSelector ?? []).join(', ')], ['Disk tags', (v.diskSelector ?? []).join(', ')], ['Auto balance', v.replicaAutoBalance],
          ['Snapshots at most', v.snapshotMaxCount], ['Snapshot data integrity', v.snapshotDataIntegrity], ['Encrypted', v.encrypted ? 'yes' : 'no'],
          ['Backup target', v.backupTargetName], ['Last backup', v.lastBackup && <><Link to={`/backups-all?q=${encodeURIComponent(v.name)}`}>{v.lastBackup}</Link> <Time at={v.lastBackupAt} /></>], ['Latest restore point', <RestorePoint of={v} />], ['Created', <Time at={v.created} />],
          ['Block size of backups', Number(v.backupBlockSize) > 0 && <Bytes of={v.backupBlockSize} />], ['Revision counter', v.revisionCounterDisabled ? 'off' : 'on'],
          ...fields.filter((f) => !told.includes(f.field)).map((f): [string, string] => [f.label, String(v[f.field] ?? '')])]} />
      </Section>
      <Rates key={v.id} of={v} />
      <Replicas of={v} />
      <Snapshots of={v} start={setDoing} />
      <VolumeJobs of={v} />
      <Section title="Attachment tickets">
        <DataTable label="Attachment tickets" columns={ticketColumns} rows={Object.values(v.volumeAttachment?.attachments ?? {})} keyOf={(t) => t.attachmentID} empty="Nobody wants the volume on a node." />
      </Section>
      <Section title="Conditions">
        <DataTable label="Conditions" columns={conditionColumns} rows={Object.entries(v.conditions ?? {}).sort()} keyOf={([n]) => n} empty="The volume has no condition." />
      </Section>
      <Section title="Events of the last hour">
        <DataTable label="Events" columns={eventColumns} rows={own} keyOf={(e) => e.id} empty="There is no event about it." sortKey="events" />
      </Section>
      {doing && (
        <VolumeDialog what={doing} volumes={[v]} onClose={() => setDoing(undefined)} after={() => {
          void client.invalidateQueries({ queryKey: ['snapshots', v.id] });
          if (doing === 'delete') void navigate('/volumes');
        }} />
      )}
    </>
  );
}
