import { Checkbox, ExpandableSection, FormGroup, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { call } from '../api/client';
import { useStream } from '../api/stream';
import type { BackupTarget, Volume } from '../api/wire';
import { Dialog, Quiet } from '../components/basics';
import { Choice } from '../components/choice';
import { bytes, typed, words } from '../format';
import { type Field, fields, isNumber } from './fields';

/** Fields that the dialog asks for by themselves, beside those of the table. */
const own = ['backupTargetName', 'accessMode'];
export const further = fields.filter((f) => !own.includes(f.field));

function FurtherField({ of: f, value, onChange }: { of: Field; value: string; onChange: (v: string) => void }) {
  if (f.choices) return <Choice id={f.field} label={f.label} value={value} options={[['', 'as the setting says'], ...f.choices]} onChange={onChange} />;
  return <FormGroup label={f.label} fieldId={f.field}><TextInput id={f.field} type={isNumber(f) ? 'number' : 'text'} value={value} onChange={(_, v) => onChange(v)} /></FormGroup>;
}

/** CreateVolume asks for a new volume, or for a copy of one. */
export function CreateVolume({ of, onClose }: { of?: Volume; onClose: () => void }) {
  const targets = useStream<BackupTarget>('backuptargets').list ?? [];
  const [name, setName] = useState(of ? `${of.name}-copy` : '');
  const [size, setSize] = useState(of ? typed(of.size) : '20Gi');
  const [replicas, setReplicas] = useState('');
  const [locality, setLocality] = useState('');
  const [mode, setMode] = useState(of?.accessMode || 'rwo');
  const [nodeTags, setNodeTags] = useState((of?.nodeSelector ?? []).join(' '));
  const [diskTags, setDiskTags] = useState((of?.diskSelector ?? []).join(' '));
  const [source, setSource] = useState(of ? `vol://${of.name}` : '');
  const [target, setTarget] = useState(of?.backupTargetName ?? '');
  const [encrypted, setEncrypted] = useState(of?.encrypted ?? false);
  const [open, setOpen] = useState(false);
  const [rest, setRest] = useState<Record<string, string>>({});
  const others = Object.fromEntries(further.filter((f) => rest[f.field]).map((f) => [f.field, isNumber(f) ? Number(rest[f.field]) : rest[f.field]]));
  return (
    <Dialog title={of ? `Copy volume ${of.name}` : 'Create volume'} label="Create" ready={!!name && !!size} done={`Volume ${name} is created`} onClose={onClose}
      run={() => call('POST', 'volumes', { ...others, name, size, numberOfReplicas: Number(replicas), dataLocality: locality, accessMode: mode,
        nodeSelector: words(nodeTags), diskSelector: words(diskTags), dataSource: source, backupTargetName: target, encrypted })}>
      <FormGroup label="Name" fieldId="name" isRequired><TextInput id="name" isRequired autoFocus value={name} onChange={(_, v) => setName(v)} /></FormGroup>
      <FormGroup label="Size, such as 20Gi" fieldId="size" isRequired><TextInput id="size" isRequired value={size} onChange={(_, v) => setSize(v)} /></FormGroup>
      <FormGroup label="Replicas (empty: as the setting says)" fieldId="replicas"><TextInput id="replicas" type="number" value={replicas} onChange={(_, v) => setReplicas(v)} /></FormGroup>
      <Choice id="locality" label="Data locality" value={locality} onChange={setLocality}
        options={[['', 'as the setting says'], 'disabled', 'best-effort', 'strict-local']} />
      <Choice id="mode" label="Access mode" value={mode} onChange={setMode} options={[['rwo', 'one node (rwo)'], ['rwop', 'one Pod (rwop)']]} />
      <FormGroup label="Node tags" fieldId="nodetags"><TextInput id="nodetags" value={nodeTags} onChange={(_, v) => setNodeTags(v)} /></FormGroup>
      <FormGroup label="Disk tags" fieldId="disktags"><TextInput id="disktags" value={diskTags} onChange={(_, v) => setDiskTags(v)} /></FormGroup>
      <FormGroup label="Copy of (vol://VOLUME or snap://VOLUME/SNAPSHOT)" fieldId="source"><TextInput id="source" value={source} onChange={(_, v) => setSource(v)} /></FormGroup>
      {of && <Quiet>A snapshot of {of.name} ({bytes(of.size)}) is taken and copied; {of.name} goes on.</Quiet>}
      <ExpandableSection toggleText="Further fields" isExpanded={open} onToggle={(_, on) => setOpen(on)}>
        <div className="ak-form">
          <Choice id="target" label="Backup target" value={target} onChange={setTarget} options={[['', 'default'], ...targets.map((t) => t.name).filter((t) => t !== 'default')]} />
          <Checkbox id="encrypted" label="Encrypted: a claim of a StorageClass with keys formats it" isChecked={encrypted} onChange={(_, on) => setEncrypted(on)} />
          {further.map((f) => <FurtherField key={f.field} of={f} value={rest[f.field] ?? ''} onChange={(v) => setRest({ ...rest, [f.field]: v })} />)}
        </div>
      </ExpandableSection>
    </Dialog>
  );
}
