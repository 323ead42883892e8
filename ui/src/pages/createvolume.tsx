import { Checkbox, ExpandableSection, FormGroup, FormHelperText, HelperText, HelperTextItem, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { call } from '../api/client';
import { useStream } from '../api/stream';
import type { BackingImage, BackupTarget, Volume } from '../api/wire';
import { Dialog, Quiet } from '../components/basics';
import { Choice } from '../components/choice';
import { bytes, sizeOf, typed, words } from '../format';
import { imageState, readyCopies } from '../images';
import { type Field, fields, isNumber } from './fields';

/** Fields that the dialog asks for by themselves, beside those of the table. */
const own = ['backupTargetName', 'accessMode'];
export const further = fields.filter((f) => !own.includes(f.field));

function FurtherField({ of: f, value, onChange }: { of: Field; value: string; onChange: (v: string) => void }) {
  if (f.choices) return <Choice id={f.field} label={f.label} value={value} options={[['', 'as the setting says'], ...f.choices]} onChange={onChange} />;
  return <FormGroup label={f.label} fieldId={f.field}><TextInput id={f.field} type={isNumber(f) ? 'number' : 'text'} value={value} onChange={(_, v) => onChange(v)} /></FormGroup>;
}

const imageText = (b: BackingImage) => `${b.name}${b.secret ? ', encrypted' : ''}${b.virtualSize > 0 ? `, ${bytes(b.virtualSize)}` : ''}${readyCopies(b) > 0 ? '' : ` (${imageState(b).toLowerCase()}: the volume waits for it)`}`;

/** CreateVolume asks for a new volume, or for a copy of one or of its snapshot. */
export function CreateVolume({ of, snapshot, onClose }: { of?: Volume; snapshot?: string; onClose: () => void }) {
  const targets = useStream<BackupTarget>('backuptargets').list ?? [];
  const [name, setName] = useState(of ? `${of.name}-copy` : '');
  const [size, setSize] = useState(of ? typed(of.size) : '20Gi');
  const [replicas, setReplicas] = useState('');
  const [locality, setLocality] = useState('');
  const [mode, setMode] = useState(of?.accessMode || 'rwo');
  const [nodeTags, setNodeTags] = useState((of?.nodeSelector ?? []).join(' '));
  const [diskTags, setDiskTags] = useState((of?.diskSelector ?? []).join(' '));
  const [source, setSource] = useState(of ? (snapshot ? `snap://${of.name}/${snapshot}` : `vol://${of.name}`) : '');
  const [image, setImage] = useState('');
  const [target, setTarget] = useState(of?.backupTargetName ?? '');
  const [encrypted, setEncrypted] = useState(of?.encrypted ?? false);
  const [blocks, setBlocks] = useState('');
  const [open, setOpen] = useState(false);
  const [rest, setRest] = useState<Record<string, string>>({});
  const images = (useStream<BackingImage>('backingimages').list ?? []).filter((b) => !b.deletionTimestamp);
  const least = images.find((b) => b.name === image)?.virtualSize ?? 0;
  const small = (sizeOf(size) ?? least) < least;
  const choose = (chosen: string) => {
    const virtual = images.find((b) => b.name === chosen)?.virtualSize ?? 0;
    setImage(chosen);
    if ((sizeOf(size) ?? virtual) < virtual) setSize(typed(virtual));
  };
  const others = Object.fromEntries(further.filter((f) => rest[f.field]).map((f) => [f.field, isNumber(f) ? Number(rest[f.field]) : rest[f.field]]));
  return (
    <Dialog title={of ? `Copy ${snapshot ? `snapshot ${snapshot} of` : 'volume'} ${of.name}` : 'Create volume'} label="Create" ready={!!name && !!size && !small} done={`Volume ${name} is created`} onClose={onClose}
      run={() => call('POST', 'volumes', { ...others, ...(blocks && { backupBlockSize: blocks }), name, size, numberOfReplicas: Number(replicas), dataLocality: locality, accessMode: mode,
        nodeSelector: words(nodeTags), diskSelector: words(diskTags), dataSource: source, backingImage: image, backupTargetName: target, encrypted })}>
      <FormGroup label="Name" fieldId="name" isRequired><TextInput id="name" isRequired autoFocus value={name} onChange={(_, v) => setName(v)} /></FormGroup>
      <FormGroup label="Size, such as 20Gi" fieldId="size" isRequired>
        <TextInput id="size" isRequired value={size} validated={small ? 'error' : 'default'} aria-describedby={small ? 'size-help' : undefined} onChange={(_, v) => setSize(v)} />
        {small && <FormHelperText id="size-help"><HelperText><HelperTextItem variant="error">{image} needs {bytes(least)} at least.</HelperTextItem></HelperText></FormHelperText>}
      </FormGroup>
      <FormGroup label="Replicas (empty: as the setting says)" fieldId="replicas"><TextInput id="replicas" type="number" value={replicas} onChange={(_, v) => setReplicas(v)} /></FormGroup>
      <Choice id="locality" label="Data locality" value={locality} onChange={setLocality}
        options={[['', 'as the setting says'], 'disabled', 'best-effort', 'strict-local']} />
      <Choice id="mode" label="Access mode" value={mode} onChange={setMode} options={[['rwo', 'one node (rwo)'], ['rwop', 'one Pod (rwop)']]} />
      <FormGroup label="Node tags" fieldId="nodetags"><TextInput id="nodetags" value={nodeTags} onChange={(_, v) => setNodeTags(v)} /></FormGroup>
      <FormGroup label="Disk tags" fieldId="disktags"><TextInput id="disktags" value={diskTags} onChange={(_, v) => setDiskTags(v)} /></FormGroup>
      <FormGroup label="Copy of (vol://VOLUME or snap://VOLUME/SNAPSHOT)" fieldId="source"><TextInput id="source" value={source} onChange={(_, v) => setSource(v)} /></FormGroup>
      {!of && images.length > 0 && (
        <Choice id="backingimage" label="Backing image, whose content it begins with" value={image} onChange={choose}
          options={[['', 'none: the volume is empty'], ...images.map((b): [string, string] => [b.name, imageText(b)])]} />
      )}
      {of && snapshot && <Quiet>The content of the snapshot is copied; {of.name} goes on.</Quiet>}
      {of && !snapshot && <Quiet>A snapshot of {of.name} ({bytes(of.size)}) is taken and copied; {of.name} goes on.</Quiet>}
      <ExpandableSection toggleText="Further fields" isExpanded={open} onToggle={(_, on) => setOpen(on)}>
        <div className="ak-form">
          <Choice id="target" label="Backup target" value={target} onChange={setTarget} options={[['', 'default'], ...targets.map((t) => t.name).filter((t) => t !== 'default')]} />
          <Choice id="blocks" label="Block size of backups" value={blocks} onChange={setBlocks} options={[['', 'as the setting says'], ['2097152', '2 MiB'], ['16777216', '16 MiB']]} />
          <Checkbox id="encrypted" label="Encrypted: a claim of a StorageClass with keys formats it" isChecked={encrypted} onChange={(_, on) => setEncrypted(on)} />
          {further.map((f) => <FurtherField key={f.field} of={f} value={rest[f.field] ?? ''} onChange={(v) => setRest({ ...rest, [f.field]: v })} />)}
        </div>
      </ExpandableSection>
    </Dialog>
  );
}
