import { Alert, Checkbox, FormGroup, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { call } from '../api/client';
import { useStream } from '../api/stream';
import type { BackingImage, Backup } from '../api/wire';
import { Dialog, Quiet } from '../components/basics';
import { Choice } from '../components/choice';
import { bytes, plural, words } from '../format';
import { useAccess } from '../session';
import { decide } from './damage';

interface Props {
  backups: Backup[];
  /** standby: the volumes follow their backups until they are activated. */
  standby?: boolean;
  onClose: () => void;
}

/** RestoreDialog makes a volume of each backup. What was made stays made when a later one is refused, and is not asked for again. */
export function RestoreDialog({ backups, standby, onClose }: Props) {
  const suffix = standby ? 'standby' : 'restored';
  const [names, setNames] = useState<Record<string, string>>(() => Object.fromEntries(backups.map((b) => [b.id, `${b.volumeName}-${suffix}`])));
  const [previous, setPrevious] = useState(false);
  const [replicas, setReplicas] = useState('');
  const [locality, setLocality] = useState('');
  const [jobs, setJobs] = useState('ignored');
  const [nodeTags, setNodeTags] = useState('');
  const [diskTags, setDiskTags] = useState('');
  const [damaged, setDamaged] = useState(false);
  const [encrypted, setEncrypted] = useState(false);
  const [made] = useState(() => new Set<string>());
  const [accepted] = useState(() => new Set<string>());
  const { may } = useAccess();
  const images = useStream<BackingImage>('backingimages').list;
  const below = [...new Set(backups.map((b) => b.volumeBackingImageName).filter(Boolean))].sort();
  const missing = below.filter((name) => images && !images.some((i) => i.name === name));
  const nameOf = (b: Backup) => (previous ? b.volumeName : (names[b.id] ?? '').trim());
  const one = backups.length === 1 ? backups[0] : undefined;
  const what = one ? one.name : plural(backups.length, 'backup');
  const run = async () => {
    for (const b of backups) {
      if (!made.has(b.id)) {
        await call('POST', 'volumes', {
          name: nameOf(b), size: b.volumeSize, numberOfReplicas: Number(replicas), dataLocality: locality, fromBackup: b.url, standby: !!standby,
          frontend: standby ? '' : 'blockdev', restoreVolumeRecurringJob: jobs, nodeSelector: words(nodeTags), diskSelector: words(diskTags),
          encrypted,
        }).catch((e: Error) => {
          throw one ? e : new Error(`${nameOf(b)}: ${e.message}${made.size ? ` (${plural(made.size, 'volume')} made before it)` : ''}`);
        });
        made.add(b.id);
      }
      if (!damaged || accepted.has(b.id)) continue;
      await decide(nameOf(b), 'accept').catch((e: Error) => {
        throw new Error(`volume ${nameOf(b)} is being restored, and damage is not accepted yet: ${e.message}`);
      });
      accepted.add(b.id);
    }
  };
  return (
    <Dialog title={standby ? `Standby volume of ${what}` : `Restore ${what}`} label={standby ? 'Create' : 'Restore'} ready={backups.every(nameOf) && missing.length === 0} wide={!one}
      done={standby ? 'The standby volumes follow their backups' : `${one ? nameOf(one) : plural(backups.length, 'volume')} being restored`} onClose={onClose} run={run}>
      {standby && <p>A standby volume takes over each newer backup of the volume. Nobody can attach it until it is activated.</p>}
      <Checkbox id="previous" label="Names as they were" isChecked={previous} onChange={(_, on) => setPrevious(on)} />
      {!previous && backups.map((b) => (
        <FormGroup key={b.id} label={one ? 'Name of the new volume' : `Name for ${b.volumeName} of snapshot ${b.snapshotName}, ${bytes(b.volumeSize)}`} fieldId={`name-${b.id}`}>
          <TextInput id={`name-${b.id}`} value={names[b.id] ?? ''} isDisabled={made.has(b.id)} onChange={(_, v) => setNames((all) => ({ ...all, [b.id]: v }))} />
        </FormGroup>
      ))}
      <FormGroup label="Replicas (empty: as the setting says)" fieldId="replicas"><TextInput id="replicas" type="number" value={replicas} onChange={(_, v) => setReplicas(v)} /></FormGroup>
      <Choice label="Data locality" id="locality" value={locality} options={[['', 'as the setting says'], 'disabled', 'best-effort', 'strict-local']} onChange={setLocality} />
      {!standby && <Choice label="Recurring jobs that the backup has" id="jobs" value={jobs} onChange={setJobs}
        options={[['ignored', 'as the setting says'], ['enabled', 'given to the volume'], ['disabled', 'left out']]} />}
      <FormGroup label="Node tags" fieldId="nodetags"><TextInput id="nodetags" value={nodeTags} onChange={(_, v) => setNodeTags(v)} /></FormGroup>
      <FormGroup label="Disk tags" fieldId="disktags"><TextInput id="disktags" value={diskTags} onChange={(_, v) => setDiskTags(v)} /></FormGroup>
      <Checkbox id="encrypted" label="Encrypted, as the volume that was backed up" isChecked={encrypted} onChange={(_, on) => setEncrypted(on)}
        description="A backup has what replicas have, and does not say whether that is encrypted. The key is that of the volume." />
      {!standby && may('POST', 'backupdamage/{name}') && (
        <Checkbox id="damaged" label="Also if it is damaged: what the backup target does not have becomes zero" isChecked={damaged} onChange={(_, on) => setDamaged(on)}
          description="Without it a restore of a damaged backup fails, and the volume's page says what is missing." />
      )}
      {missing.length > 0 && (
        <Alert variant="warning" isInline title={`There is no backing image ${missing.join(', ')}`}>
          A backup has what a volume has written over its backing image, and nothing of that. Create the backing image with this name first, from the same file.
        </Alert>
      )}
      {missing.length === 0 && below.length > 0 && <Quiet>On backing image {below.join(', ')}, which has to be the same as it was.</Quiet>}
      <Quiet>{one ? `${bytes(one.volumeSize)} from ${one.backupTargetName}.` : `${bytes(backups.reduce((sum, b) => sum + Number(b.volumeSize), 0))} in all.`}</Quiet>
    </Dialog>
  );
}
