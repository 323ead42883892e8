import { Checkbox, FormGroup, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { act, call, path } from '../api/client';
import { useStream } from '../api/stream';
import { useUpgradeLimit } from '../api/upgradelimit';
import type * as gen from '../api/types.gen';
import type { BackupTarget, EngineImage, Node, Volume } from '../api/wire';
import { Dialog, Quiet } from '../components/basics';
import { Choice, type Entry } from '../components/choice';
import { bytes, plural, typed, words } from '../format';
import { nodeState } from '../health';
import { useAccess } from '../session';
import { backupFields, BackupFields } from './backupfields';
import { CreateVolume } from './createvolume';
import { fields } from './fields';

export type Doing = 'attach' | 'detach' | 'delete' | 'snapshot' | 'backup' | 'replicas' | 'expand' | 'cancel' | 'locality' | 'change' | 'upgrade' | 'claim' | 'salvage' | 'activate' | 'trim' | 'copy';

/** can tells whether a volume takes an action now, and the user may do it. */
export function useCan() {
  const { may } = useAccess();
  return (v: Volume, action: string) => action in (v.actions ?? {}) && may(action, 'volumes');
}

const doings: [Doing, string, string][] = [['activate', 'activate', 'Activate…'], ['attach', 'attach', 'Attach…'], ['detach', 'detach', 'Detach…'],
  ['snapshot', 'snapshotCRCreate', 'Take snapshot…'], ['backup', 'snapshotBackup', 'Back up…'], ['replicas', 'updateReplicaCount', 'Change replica count…'], ['expand', 'expand', 'Expand…'],
  ['cancel', 'cancelExpansion', 'Cancel expansion…'], ['locality', 'updateDataLocality', 'Change data locality…'], ['upgrade', 'engineUpgrade', 'Upgrade engine…'],
  ['claim', 'pvCreate', 'Create PersistentVolume…'], ['trim', 'trimFilesystem', 'Trim file system…'], ['salvage', 'salvage', 'Salvage…']];

/** shown are the conditions of an entry beside those of its action. */
const shown: Partial<Record<Doing, (v: Volume, all: Volume[]) => boolean>> = {
  activate: (v) => v.standby,
  attach: (v) => v.state === 'detached' && !v.standby,
  detach: (v) => v.state !== 'detached' && !v.standby,
  snapshot: (v) => !v.standby,
  backup: (v) => v.state === 'attached' && !v.standby,
  expand: (v) => !v.standby,
  cancel: (v) => (v.controllers ?? []).some((c) => c.isExpanding || c.lastExpansionError),
  claim: (v) => !v.kubernetesStatus?.pvName && !v.standby,
  salvage: (_, all) => all.length === 1,
};

/** useEntries are the actions of a menu that all of the volumes take. */
export function useEntries() {
  const can = useCan();
  const { may } = useAccess();
  const images = useStream<EngineImage>('engineimages').list;
  const limit = useUpgradeLimit();
  /** why says why an entry that is there cannot be chosen now. */
  const why: Partial<Record<Doing, (all: Volume[]) => string | undefined>> = {
    upgrade: (all) => {
      const deployed = (images ?? []).filter((i) => i.state === 'deployed');
      if (all.every((v) => !deployed.some((i) => i.image !== v.image))) return 'No other engine image is deployed';
      const now = images?.find((i) => i.default)?.image;
      return limit && all.every((v) => v.image === now) ? 'The engine follows the default image by itself' : undefined;
    },
  };
  return (volumes: Volume[], start: (what: Doing) => void): Entry[] => {
    const entries: Entry[] = doings.filter(([what, action]) => volumes.length > 0 && volumes.every((v) => can(v, action) && (shown[what]?.(v, volumes) ?? true)))
      .map(([what, , name]) => ({ name, run: () => start(what), why: why[what]?.(volumes) }));
    if (changesOf(volumes, can).length > 0) entries.push({ name: 'Change…', run: () => start('change') });
    if (volumes.length === 1 && !volumes[0]?.standby && may('POST', 'volumes')) entries.push({ name: 'Copy…', run: () => start('copy') });
    if (volumes.length > 0 && may('DELETE', 'volumes')) entries.push({ name: 'Delete…', danger: true, run: () => start('delete') });
    return entries;
  };
}

/** changesOf are the fields that can be changed of all of the volumes. */
const changesOf = (volumes: Volume[], can: (v: Volume, action: string) => boolean) => fields.filter((f) => volumes.length > 0 && volumes.every((v) => can(v, f.action)));

/** Using names who uses a volume. */
function Using({ of }: { of: Volume[] }) {
  const lines = of.flatMap((v) => {
    const k = v.kubernetesStatus;
    const pods = k?.lastPodRefAt ? [] : (k?.workloadsStatus ?? []).map((w) => `Pod ${k.namespace}/${w.podName}${w.workloadName ? ` of ${w.workloadType} ${w.workloadName}` : ''}`);
    const claim = k?.pvcName && !k.lastPVCRefAt ? [`claim ${k.namespace}/${k.pvcName}`] : [];
    const pv = k?.pvName ? [`PersistentVolume ${k.pvName}`] : [];
    const node = v.state === 'attached' ? [`attached to ${v.controllers?.[0]?.hostId ?? 'a node'}`] : [];
    return [`${v.name} (${bytes(v.size)}${[...node, ...pods, ...claim, ...pv].map((t) => `, ${t}`).join('')})`];
  });
  return <ul className="ak-list">{lines.map((l) => <li key={l}>{l}</li>)}</ul>;
}

interface Props {
  what: Doing;
  volumes: Volume[];
  /** image is offered first where the engine is upgraded; the default one without it. */
  image?: string;
  onClose: () => void;
  after?: () => void;
}

/** VolumeDialog asks for what an action of volumes needs, and does it on each of them. */
export function VolumeDialog({ what, volumes, image, onClose, after }: Props) {
  const nodes = useStream<Node>('nodes').list ?? [];
  const images = useStream<EngineImage>('engineimages').list ?? [];
  const one = volumes[0];
  const [node, setNode] = useState('');
  const [flag, setFlag] = useState(false);
  const [text, setText] = useState(what === 'replicas' ? String(one?.numberOfReplicas ?? 3) : what === 'expand' ? typed(one?.size)
    : what === 'locality' ? (one?.dataLocality ?? '') : '');
  const whom = volumes.length === 1 ? `volume ${one?.name}` : plural(volumes.length, 'volume');
  // One after the other: the first refusal stops it, and names the volume.
  const each = (f: (v: Volume) => Promise<unknown>) => async () => {
    for (const v of volumes) {
      await f(v).catch((e: Error) => {
        throw volumes.length > 1 ? new Error(`${v.name}: ${e.message}`) : e;
      });
    }
    after?.();
  };
  const props = { onClose };
  switch (what) {
    case 'attach': {
      const ready = nodes.filter((n) => nodeState(n) !== 'Down').map((n) => n.name);
      const chosen = node || ready[0] || '';
      return (
        <Dialog {...props} title={`Attach ${whom}`} label="Attach" ready={!!chosen} done={`${whom} is being attached to ${chosen}`}
          run={each((v) => act('volumes', v.id, 'attach', { hostId: chosen, disableFrontend: flag, attachmentID: '' }))}>
          <Choice id="node" label="Node" value={chosen} options={ready} onChange={setNode} />
          <Checkbox id="maintenance" label="Maintenance: without a block device, as reverting to a snapshot wants it" isChecked={flag} onChange={(_, on) => setFlag(on)} />
        </Dialog>
      );
    }
    case 'detach': {
      const used = volumes.some((v) => Object.values(v.volumeAttachment?.attachments ?? {}).some((t) => t.attachmentType === 'csi-attacher'));
      return (
        <Dialog {...props} danger title={`Detach ${whom}?`} label="Detach" done={`${whom} is being detached`}
          run={each((v) => act('volumes', v.id, 'detach', { attachmentID: '', hostId: '', forceDetach: flag }))}>
          {used && <p>Kubernetes has attached it for a Pod: the plain ticket is withdrawn, and the volume stays attached as long as Kubernetes wants it.</p>}
          <Using of={volumes} />
          <Checkbox id="force" label="Withdraw every ticket, those of Kubernetes too: what writes to the volume gets I/O errors" isChecked={flag} onChange={(_, on) => setFlag(on)} />
        </Dialog>
      );
    }
    case 'delete':
      return (
        <Dialog {...props} danger title={`Delete ${whom}?`} label="Delete" done={`${whom} is being deleted`} run={each((v) => call('DELETE', path('volumes', v)))}>
          <p>All data and all snapshots of these are lost, on every replica:</p>
          <Using of={volumes} />
          {volumes.some((v) => v.kubernetesStatus?.pvName) && <p>PersistentVolumes and claims that stand for them are deleted, too.</p>}
        </Dialog>
      );
    case 'snapshot':
      return (
        <Dialog {...props} title={`Take a snapshot of ${whom}`} label="Take snapshot" done={`A snapshot of ${whom} is ordered`}
          run={each((v) => act('volumes', v.id, v.state === 'attached' ? 'snapshotCreate' : 'snapshotCRCreate', text && volumes.length === 1 ? { name: text } : {}))}>
          {volumes.length === 1 && <FormGroup label="Name (empty: one is made up)" fieldId="name"><TextInput id="name" autoFocus value={text} onChange={(_, v) => setText(v)} /></FormGroup>}
          <Quiet>The content as it is now stays readable; the volume goes on.</Quiet>
        </Dialog>
      );
    case 'backup':
      return <BackUpDialog {...props} volumes={volumes} whom={whom} each={each} />;
    case 'replicas':
      return (
        <Dialog {...props} title={`Replicas of ${whom}`} label="Change" ready={Number(text) > 0} done="The replica count is changed"
          run={each((v) => act('volumes', v.id, 'updateReplicaCount', { replicaCount: Number(text) }))}>
          <FormGroup label="Number of replicas" fieldId="count"><TextInput id="count" type="number" autoFocus value={text} onChange={(_, v) => setText(v)} /></FormGroup>
        </Dialog>
      );
    case 'expand':
      return (
        <Dialog {...props} title={`Expand ${whom}`} label="Expand" ready={!!text} done="The expansion is ordered" run={each((v) => act('volumes', v.id, 'expand', { size: text }))}>
          <FormGroup label="New size, such as 20Gi" fieldId="size"><TextInput id="size" autoFocus value={text} onChange={(_, v) => setText(v)} /></FormGroup>
        </Dialog>
      );
    case 'locality':
      return (
        <Dialog {...props} title={`Data locality of ${whom}`} label="Change" done="The data locality is changed"
          run={each((v) => act('volumes', v.id, 'updateDataLocality', { dataLocality: text }))}>
          <Choice id="locality" label="Data locality" value={text} options={['disabled', 'best-effort', 'strict-local']} onChange={setText} />
        </Dialog>
      );
    case 'upgrade': {
      const others = images.filter((i) => i.state === 'deployed').map((i) => i.image);
      const chosen = text || image || images.find((i) => i.default)?.image || '';
      return (
        <Dialog {...props} title={`Upgrade the engine of ${whom}`} label="Upgrade" ready={!!chosen} done="The upgrade is ordered"
          run={each((v) => act('volumes', v.id, 'engineUpgrade', { image: chosen }))}>
          <Choice id="image" label="Engine image" value={chosen} options={others} onChange={setText} />
          <Quiet>An attached volume is upgraded while it is in use.</Quiet>
        </Dialog>
      );
    }
    case 'cancel':
      return (
        <Dialog {...props} title={`Cancel the expansion of ${whom}`} label="Cancel it" done="The expansion is cancelled" run={each((v) => act('volumes', v.id, 'cancelExpansion'))}>
          The volume keeps the size that it has, unless the expansion is over first.
        </Dialog>
      );
    case 'activate':
      return (
        <Dialog {...props} title={`Activate ${whom}`} label="Activate" done={`${whom} is being activated`} run={each((v) => act('volumes', v.id, 'activate', { frontend: 'blockdev' }))}>
          <p>The newest backup is restored first, if it is not there yet. From then on {volumes.length === 1 ? 'it is a volume' : 'they are volumes'} like others: newer backups are not taken over any more,
            and there is no way back.</p>
          <Using of={volumes} />
        </Dialog>
      );
    case 'copy':
      return one ? <CreateVolume of={one} onClose={onClose} /> : null;
    case 'change':
      return <ChangeDialog {...props} volumes={volumes} whom={whom} each={each} />;
    case 'claim':
      return <ClaimDialog {...props} volumes={volumes} whom={whom} each={each} />;
    case 'trim':
      return (
        <Dialog {...props} title={`Trim the file system of ${whom}`} label="Trim" done="The file system gave back what it does not use"
          run={each((v) => act('volumes', v.id, 'trimFilesystem'))}>
          It can take minutes; this dialog may be left.
        </Dialog>
      );
    case 'salvage': {
      const failed = (one?.replicas ?? []).filter((r) => r.failedAt);
      const picked = text ? words(text) : failed.map((r) => r.name);
      return (
        <Dialog {...props} danger title={`Salvage ${whom}`} label="Salvage" ready={picked.length > 0} done="The replicas are used again" run={each((v) => act('volumes', v.id, 'salvage', { names: picked }))}>
          <p>The volume goes on with the content of these replicas; what others have and they do not is lost.</p>
          {failed.map((r) => (
            <Checkbox key={r.name} id={r.name} label={`${r.name} on ${r.hostId}, failed ${r.failedAt}`} isChecked={picked.includes(r.name)}
              onChange={(_, on) => setText((on ? [...picked, r.name] : picked.filter((n) => n !== r.name)).join(' '))} />
          ))}
        </Dialog>
      );
    }
  }
}

interface PartProps {
  volumes: Volume[];
  whom: string;
  each: (f: (v: Volume) => Promise<unknown>) => () => Promise<void>;
  onClose: () => void;
}

/** BackUpDialog takes a snapshot of each volume, and backs that up. */
function BackUpDialog({ volumes, whom, each, onClose }: PartProps) {
  const [full, setFull] = useState(false);
  const [labels, setLabels] = useState('');
  const to = [...new Set(volumes.map((v) => v.backupTargetName || 'default'))].sort();
  return (
    <Dialog title={`Back up ${whom}`} label="Back up" done={`${whom} is being backed up`} onClose={onClose}
      run={each(async (v) => {
        const taken = await act<gen.SnapshotCR>('volumes', v.id, 'snapshotCRCreate', {});
        await act('volumes', v.id, 'snapshotBackup', { name: taken.name, ...backupFields(full, labels) });
      })}>
      <p>A snapshot is taken and sent to backup target {to.join(', ')}; the volume goes on, and its page has the progress.</p>
      <BackupFields full={full} setFull={setFull} labels={labels} setLabels={setLabels} />
    </Dialog>
  );
}

/** shared is a value that all have, else nothing. */
function shared<T>(all: T[]): T | undefined {
  return all.every((x) => x === all[0]) ? all[0] : undefined;
}

function ChangeDialog({ volumes, whom, each, onClose }: PartProps) {
  const can = useCan();
  const targets = useStream<BackupTarget>('backuptargets').list ?? [];
  const possible = changesOf(volumes, can);
  const [action, setAction] = useState('');
  const [entered, setEntered] = useState<string>();
  const f = possible.find((o) => o.action === action) ?? possible[0];
  if (!f) return null;
  const now = shared(volumes.map((v) => String(v[f.field] ?? '')));
  const value = entered ?? now ?? '';
  const choices = f.field === 'backupTargetName' ? targets.map((t) => t.name) : f.choices;
  return (
    <Dialog title={`Change ${whom}`} label="Change" ready={value !== '' && value !== now} done={`${f.label} is ${value} now`} onClose={onClose}
      run={each((v) => act('volumes', v.id, f.action, { [f.field]: f.number ? Number(value) : value }))}>
      <Choice id="what" label="What" value={f.action} options={possible.map((o): [string, string] => [o.action, o.label])} onChange={(a) => { setAction(a); setEntered(undefined); }} />
      {choices ? <Choice id="value" label="Value" value={value} options={choices.includes(value) ? choices : [[value, value || 'not the same for all'], ...choices]} onChange={setEntered} />
        : <FormGroup label="Value" fieldId="value"><TextInput id="value" type={f.number ? 'number' : 'text'} value={value} onChange={(_, v) => setEntered(v)} /></FormGroup>}
    </Dialog>
  );
}

function ClaimDialog({ volumes, whom, each, onClose }: PartProps) {
  const one = volumes.length === 1 ? volumes[0] : undefined;
  const [pv, setPV] = useState(one?.name ?? '');
  const [fs, setFS] = useState('ext4');
  const [className, setClassName] = useState('');
  const [secret, setSecret] = useState('');
  const [secretNamespace, setSecretNamespace] = useState('');
  const encrypted = volumes.some((v) => v.encrypted);
  const [claim, setClaim] = useState(true);
  const [namespace, setNamespace] = useState(shared(volumes.map((v) => v.kubernetesStatus?.namespace ?? '')) || 'default');
  const [pvc, setPVC] = useState(one?.kubernetesStatus?.pvcName || one?.name || '');
  return (
    <Dialog title={`PersistentVolume of ${whom}`} label="Create" ready={!claim || !!namespace} done={`${whom} can be used by Kubernetes`} onClose={onClose}
      run={each(async (v) => {
        await act('volumes', v.id, 'pvCreate', { pvName: one ? pv : v.name, fsType: fs, storageClassName: className.trim(),
          ...(v.encrypted ? { secretName: secret.trim(), secretNamespace: secretNamespace.trim() } : {}) });
        if (claim) await act('volumes', v.id, 'pvcCreate', { namespace, pvcName: one ? pvc : v.kubernetesStatus?.pvcName || v.name });
      })}>
      {one && <FormGroup label="Name of the PersistentVolume" fieldId="pv"><TextInput id="pv" value={pv} onChange={(_, v) => setPV(v)} /></FormGroup>}
      <Choice id="fs" label="File system, made where there is none" value={fs} options={['ext4', 'xfs']} onChange={setFS} />
      <FormGroup label="StorageClass (empty: as the setting says)" fieldId="class"><TextInput id="class" value={className} onChange={(_, v) => setClassName(v)} /></FormGroup>
      {encrypted && (
        <>
          <FormGroup label="Secret with the key (empty: longhorn-crypto)" fieldId="secret"><TextInput id="secret" value={secret} onChange={(_, v) => setSecret(v)} /></FormGroup>
          <FormGroup label="Namespace of the Secret (empty: that of the system)" fieldId="secretnamespace"><TextInput id="secretnamespace" value={secretNamespace} onChange={(_, v) => setSecretNamespace(v)} /></FormGroup>
        </>
      )}
      <Checkbox id="claimed" label="With a claim, which Pods can use" isChecked={claim} onChange={(_, on) => setClaim(on)} />
      {claim && <FormGroup label="Namespace of the claim" fieldId="namespace"><TextInput id="namespace" value={namespace} onChange={(_, v) => setNamespace(v)} /></FormGroup>}
      {claim && one && <FormGroup label="Name of the claim" fieldId="pvc"><TextInput id="pvc" value={pvc} onChange={(_, v) => setPVC(v)} /></FormGroup>}
    </Dialog>
  );
}
