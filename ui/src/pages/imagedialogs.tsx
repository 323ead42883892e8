import { Checkbox, FormGroup, FormHelperText, HelperText, HelperTextItem, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { act, base, call, path } from '../api/client';
import { useStream } from '../api/stream';
import { upload } from '../api/upload';
import type { BackingImage, Node, Volume } from '../api/wire';
import { Dialog, Quiet, useTell } from '../components/basics';
import { Choice, type Entry } from '../components/choice';
import { bytes, plural, words } from '../format';
import { checksumProblem, copiesOf, mayBeUploaded, placeOf, readyCopies, usersOf } from '../images';
import { useAccess } from '../session';
import { ImageBackupDialog } from './imagebackups';

export type ImageDoing = 'upload' | 'backup' | 'copies' | 'cleanup' | 'delete';

/** downloadOf is where the file of an image is, packed by gzip. */
export const downloadOf = (b: BackingImage) => `${base}v1/${path('backingimages', b)}/download`;

/** useImageEntries are the actions that all of the images take. */
export function useImageEntries() {
  const { may } = useAccess();
  const can = (all: BackingImage[], action: string) => all.every((b) => action in (b.actions ?? {})) && may(action, 'backingimages');
  return (images: BackingImage[], start: (what: ImageDoing) => void): Entry[] => {
    const one = images.length === 1 ? images[0] : undefined;
    if (images.length === 0 || images.some((b) => b.deletionTimestamp)) return [];
    return [
      ...(one && mayBeUploaded(one) && can(images, 'upload') ? [{ name: 'Upload…', run: () => start('upload') }] : []),
      ...(can(images, 'backupBackingImageCreate') ? [{ name: 'Back up…', run: () => start('backup'),
        why: images.every((b) => readyCopies(b) > 0) ? undefined : 'one of them has no copy that is ready' }] : []),
      ...(can(images, 'updateMinNumberOfCopies') ? [{ name: 'Change minimum copies…', run: () => start('copies') }] : []),
      ...(one && can(images, 'backingImageCleanup') ? [{ name: 'Clean up copies…', run: () => start('cleanup'),
        why: Object.keys(one.diskFileStatusMap ?? {}).length > 0 ? undefined : 'It has no copy' }] : []),
      ...(may('DELETE', 'backingimages') ? [{ name: 'Delete…', danger: true, run: () => start('delete') }] : []),
    ];
  };
}

function FileField({ onChange }: { onChange: (file: File | undefined) => void }) {
  return (
    <FormGroup label="File: raw or qcow2, also packed by gzip, xz or zstd" fieldId="file" isRequired>
      <input id="file" type="file" onChange={(e) => onChange(e.target.files?.[0])} />
    </FormGroup>
  );
}

/** useUpload sends a file in the background, and tells when it is stored. */
function useUpload() {
  const tell = useTell();
  return (image: string, file: File) => void upload(image, file, () => tell('success', `Backing image ${image} has its file`));
}

const sources: [string, string][] = [
  ['download', 'a URL, which a node downloads'], ['upload', 'a file of this computer'], ['export-from-volume', 'the content of a volume'],
  ['clone', 'another backing image'],
];

const encryptions: [string, string][] = [['ignore', 'as it is'], ['encrypt', 'encrypted'], ['decrypt', 'decrypted']];

/** CreateImage asks for a new image. */
export function CreateImage({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const [source, setSource] = useState('download');
  const [url, setURL] = useState('');
  const [file, setFile] = useState<File>();
  const [volume, setVolume] = useState('');
  const [kind, setKind] = useState('raw');
  const [image, setImage] = useState('');
  const [encryption, setEncryption] = useState('ignore');
  const [secret, setSecret] = useState('');
  const [secretNamespace, setSecretNamespace] = useState('longhorn-system');
  const [checksum, setChecksum] = useState('');
  const [copies, setCopies] = useState('');
  const [nodeTags, setNodeTags] = useState('');
  const [diskTags, setDiskTags] = useState('');
  const volumes = useStream<Volume>('volumes').list ?? [], images = useStream<BackingImage>('backingimages').list ?? [];
  const send = useUpload();
  const problem = checksumProblem(checksum.trim());
  const parameters: Record<string, Record<string, string>> = {
    download: { url: url.trim() }, upload: {}, 'export-from-volume': { 'volume-name': volume, 'export-type': kind },
    clone: { 'backing-image': image, encryption, ...(encryption === 'ignore' ? {} : { secret: secret.trim(), 'secret-namespace': secretNamespace.trim() }) },
  };
  const chosen = Object.values(parameters[source] ?? {}).every(Boolean) && (source !== 'upload' || (file?.size ?? 0) > 0);
  const run = async () => {
    const made = await call<BackingImage>('POST', 'backingimages', { name, sourceType: source, parameters: parameters[source],
      expectedChecksum: checksum.trim(), minNumberOfCopies: Number(copies), nodeSelector: words(nodeTags), diskSelector: words(diskTags) });
    if (source === 'upload' && file) send(made.name, file);
  };
  const choices = (names: string[]): [string, string][] => [['', 'choose one'], ...names.sort().map((n): [string, string] => [n, n])];
  return (
    <Dialog title="Create backing image" label="Create" ready={!!name && !problem && chosen}
      done={`Backing image ${name} is being made`} onClose={onClose} run={run}>
      <FormGroup label="Name" fieldId="name" isRequired><TextInput id="name" isRequired autoFocus value={name} onChange={(_, v) => setName(v)} /></FormGroup>
      <Choice id="from" label="From" value={source} onChange={setSource} options={sources} />
      {source === 'download' && (
        <FormGroup label="URL (http or https), which nodes can reach" fieldId="url" isRequired><TextInput id="url" type="url" isRequired value={url} onChange={(_, v) => setURL(v)} /></FormGroup>
      )}
      {source === 'upload' && (
        <>
          <FileField onChange={setFile} />
          <Quiet>{file?.size === 0 ? 'The file is empty.' : file ? `${bytes(file.size)} are sent by this page, which has to stay open.` : 'The page sends it, and has to stay open.'}</Quiet>
        </>
      )}
      {source === 'export-from-volume' && (
        <>
          <Choice id="volume" label="Volume" value={volume} onChange={setVolume} options={choices(volumes.filter((v) => !v.standby).map((v) => v.name))} />
          <Choice id="kind" label="File" value={kind} onChange={setKind} options={[['raw', 'raw: as large as the volume'], ['qcow2', 'qcow2: as large as its data']]} />
          <Quiet>A snapshot is taken for it and removed after it. The volume may be in use; one that is detached is attached meanwhile.</Quiet>
        </>
      )}
      {source === 'clone' && (
        <>
          <Choice id="image" label="Backing image" value={image} onChange={setImage} options={choices(images.filter((b) => readyCopies(b) > 0 && !b.deletionTimestamp
            && (encryption === 'ignore' || !b.secret === (encryption === 'encrypt'))).map((b) => b.name))} />
          <Choice id="encryption" label="It becomes" value={encryption} onChange={(v) => { setEncryption(v); setImage(''); }} options={encryptions} />
        </>
      )}
      {source === 'clone' && encryption !== 'ignore' && (
        <>
          <FormGroup label="Secret with the key" fieldId="secret" isRequired><TextInput id="secret" isRequired value={secret} onChange={(_, v) => setSecret(v)} /></FormGroup>
          <FormGroup label="Namespace of the Secret" fieldId="secretnamespace" isRequired><TextInput id="secretnamespace" isRequired value={secretNamespace} onChange={(_, v) => setSecretNamespace(v)} /></FormGroup>
        </>
      )}
      <FormGroup label="SHA-512 that it must have, unpacked (empty: any)" fieldId="checksum">
        <TextInput id="checksum" value={checksum} validated={problem ? 'error' : 'default'} aria-describedby={problem && 'checksum-help'} onChange={(_, v) => setChecksum(v)} />
        {problem && <FormHelperText id="checksum-help"><HelperText><HelperTextItem variant="error">{problem}</HelperTextItem></HelperText></FormHelperText>}
      </FormGroup>
      <FormGroup label="Copies at least (empty: as the setting says)" fieldId="copies"><TextInput id="copies" type="number" min={1} value={copies} onChange={(_, v) => setCopies(v)} /></FormGroup>
      <FormGroup label="Tags of nodes that may have a copy" fieldId="nodetags"><TextInput id="nodetags" value={nodeTags} onChange={(_, v) => setNodeTags(v)} /></FormGroup>
      <FormGroup label="Tags of disks that may have a copy" fieldId="disktags"><TextInput id="disktags" value={diskTags} onChange={(_, v) => setDiskTags(v)} /></FormGroup>
    </Dialog>
  );
}

interface Props {
  what: ImageDoing;
  images: BackingImage[];
  onClose: () => void;
  after?: () => void;
}

/** ImageDialog asks for what an action of images needs, and does it on each of them. */
export function ImageDialog({ what, images, onClose, after }: Props) {
  const one = images[0];
  if (!one) return null;
  switch (what) {
    case 'upload': return <UploadDialog of={one} onClose={onClose} />;
    case 'backup': return <ImageBackupDialog of={images} onClose={onClose} />;
    case 'cleanup': return <CleanUpDialog of={one} onClose={onClose} />;
    case 'copies': return <CopiesDialog of={images} onClose={onClose} />;
    case 'delete': return <DeleteDialog of={images} onClose={onClose} after={after} />;
  }
}

const whom = (all: BackingImage[]) => (all.length === 1 ? `backing image ${all[0]?.name}` : plural(all.length, 'backing image'));

function UploadDialog({ of: b, onClose }: { of: BackingImage; onClose: () => void }) {
  const [file, setFile] = useState<File>();
  const send = useUpload();
  return (
    <Dialog title={`Upload backing image ${b.name}`} label="Upload" ready={(file?.size ?? 0) > 0} onClose={onClose} run={async () => { if (file) send(b.name, file); }}>
      <FileField onChange={setFile} />
      <Quiet>The page sends it, and has to stay open. What an upload before it has sent is not kept.</Quiet>
    </Dialog>
  );
}

function CopiesDialog({ of: all, onClose }: { of: BackingImage[]; onClose: () => void }) {
  const [copies, setCopies] = useState(String(Math.max(...all.map((b) => b.minNumberOfCopies))));
  return (
    <Dialog title={`Minimum copies of ${whom(all)}`} label="Change" ready={Number(copies) >= 1} done="The number of copies is changed" onClose={onClose}
      run={async () => { for (const b of all) await act('backingimages', b.id, 'updateMinNumberOfCopies', { minNumberOfCopies: Number(copies) }); }}>
      <FormGroup label="Copies at least" fieldId="copies"><TextInput id="copies" type="number" min={1} autoFocus value={copies} onChange={(_, v) => setCopies(v)} /></FormGroup>
      <Quiet>Missing ones are made on disks with the room and the tags for them. Those that nobody needs are removed after setting backing-image-cleanup-wait-interval.</Quiet>
    </Dialog>
  );
}

function CleanUpDialog({ of: b, onClose }: { of: BackingImage; onClose: () => void }) {
  const copies = copiesOf(b, useStream<Node>('nodes').list, useStream<Volume>('volumes').list);
  const [picked, setPicked] = useState<Set<string>>(new Set());
  const chosen = copies.filter((c) => picked.has(c.disk) && c.volumes.length === 0);
  const left = copies.filter((c) => c.state === 'ready' && !chosen.includes(c)).length;
  const too = chosen.some((c) => c.state === 'ready') && left < b.minNumberOfCopies;
  return (
    <Dialog danger title={`Clean up copies of ${b.name}`} label="Remove copies" ready={chosen.length > 0 && !too} done="The copies are being removed" onClose={onClose}
      run={() => act('backingimages', b.id, 'backingImageCleanup', { disks: chosen.map((c) => c.disk) })}>
      <p>The files are removed from these disks. A volume that wants one there again has it copied from another disk.</p>
      {copies.map((c) => (
        <Checkbox key={c.disk} id={`copy-${c.disk}`} label={`${placeOf(c)}: ${c.state || 'pending'}`} isDisabled={c.volumes.length > 0} isChecked={picked.has(c.disk) && c.volumes.length === 0}
          description={c.volumes.length > 0 ? `used by ${c.volumes.join(', ')}` : c.message}
          onChange={(_, on) => setPicked((before) => { const next = new Set(before); if (on) next.add(c.disk); else next.delete(c.disk); return next; })} />
      ))}
      {too && <p role="status">{plural(left, 'copy', 'copies')} would be left, {b.minNumberOfCopies} are wanted: change the minimum first.</p>}
    </Dialog>
  );
}

function DeleteDialog({ of: all, onClose, after }: { of: BackingImage[]; onClose: () => void; after?: () => void }) {
  const volumes = useStream<Volume>('volumes').list;
  const used = all.map((b) => ({ b, users: usersOf(b.name, volumes) })).filter(({ users }) => users.length > 0);
  return (
    <Dialog danger title={`Delete ${whom(all)}?`} label="Delete" ready={used.length === 0} done={`${whom(all)} is being deleted`} onClose={onClose}
      run={async () => {
        for (const b of all) {
          await call('DELETE', path('backingimages', b)).catch((e: Error) => {
            throw all.length > 1 ? new Error(`${b.name}: ${e.message}`) : e;
          });
        }
        after?.();
      }}>
      {used.length > 0 ? (
        <>
          <p>Volumes are made from it, and read what nobody has written from it. Delete them first:</p>
          <ul className="ak-list">{used.map(({ b, users }) => <li key={b.id}>{b.name}: {users.map((v) => v.name).join(', ')}</li>)}</ul>
        </>
      ) : (
        <>
          <p>Every copy is removed from its disk, and no volume can be made from it any more. Download it first if nobody else has it:</p>
          <ul className="ak-list">{all.map((b) => <li key={b.id}>{b.name} ({b.size > 0 ? `${bytes(b.size)}, ` : ''}{plural(readyCopies(b), 'copy', 'copies')})</li>)}</ul>
        </>
      )}
    </Dialog>
  );
}
