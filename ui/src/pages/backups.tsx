import { Button, FormGroup, TextInput, Title } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useParams } from 'react-router';
import { act, call, path } from '../api/client';
import { useStream } from '../api/stream';
import type { Backup, BackupTarget, BackupVolume } from '../api/wire';
import { Bytes, Dialog, Quiet, State, Time } from '../components/basics';
import { Choice } from '../components/choice';
import { type Column, DataTable } from '../components/table';
import { plural, seconds } from '../format';
import { useAccess } from '../session';
import { Head, usePicked } from './lists';

const id = (o: { id: string }) => o.id;

function TargetDialog({ target, onClose }: { target?: BackupTarget; onClose: () => void }) {
  const [name, setName] = useState(target?.name ?? '');
  const [url, setURL] = useState(target?.backupTargetURL ?? '');
  const [secret, setSecret] = useState(target?.credentialSecret ?? '');
  const [poll, setPoll] = useState(String(seconds(target?.pollInterval ?? '300')));
  const wanted = { name: name.trim(), backupTargetURL: url.trim(), credentialSecret: secret.trim(), pollInterval: poll };
  return (
    <Dialog title={target ? `Edit backup target ${target.name}` : 'Create backup target'} label={target ? 'Save' : 'Create'} ready={!!wanted.name}
      done={`Backup target ${wanted.name} is saved`} onClose={onClose}
      run={() => (target ? act('backuptargets', target.id, 'backupTargetUpdate', wanted) : call('POST', 'backuptargets', wanted))}>
      {!target && <FormGroup label="Name" fieldId="name"><TextInput id="name" autoFocus value={name} onChange={(_, v) => setName(v)} /></FormGroup>}
      <FormGroup label="URL, such as s3://bucket@region/path" fieldId="url"><TextInput id="url" value={url} onChange={(_, v) => setURL(v)} /></FormGroup>
      <FormGroup label="Secret with the credentials, in the system's namespace" fieldId="secret"><TextInput id="secret" value={secret} onChange={(_, v) => setSecret(v)} /></FormGroup>
      <FormGroup label="Look every so many seconds (0: never)" fieldId="poll"><TextInput id="poll" type="number" value={poll} onChange={(_, v) => setPoll(v)} /></FormGroup>
    </Dialog>
  );
}

export function BackupTargets() {
  const { list: all, failure } = useStream<BackupTarget>('backuptargets');
  const { may } = useAccess();
  const rows = usePicked(all, (t) => `${t.name} ${t.backupTargetURL}`);
  const [editing, setEditing] = useState<BackupTarget | 'new'>();
  const [deleting, setDeleting] = useState<BackupTarget>();
  const [looking, setLooking] = useState<BackupTarget>();
  const columns: Column<BackupTarget>[] = [
    { title: 'Name', width: 12, cell: (t) => t.name, by: (t) => t.name },
    { title: 'State', width: 10, cell: (t) => (t.backupTargetURL ? <State of={t.available ? 'available' : 'unavailable'} /> : <Quiet>no URL</Quiet>), by: (t) => String(t.available) },
    { title: 'URL', cell: (t) => <span className="ak-mono" title={t.backupTargetURL}>{t.backupTargetURL || '–'}</span>, by: (t) => t.backupTargetURL },
    { title: 'Secret', width: 12, cell: (t) => t.credentialSecret || '–' },
    { title: 'Looks every', width: 8, cell: (t) => (seconds(t.pollInterval) ? t.pollInterval : 'never') },
    { title: 'Why it is not available', wrap: true, cell: (t) => t.message || '–' },
    { title: 'Actions', width: 13, cell: (t) => (
      <>
        {may('backupTargetUpdate', 'backuptargets') && <Button variant="link" isInline onClick={() => setEditing(t)}>Edit</Button>}{' '}
        {may('backupTargetSync', 'backuptargets') && t.backupTargetURL && <Button variant="link" isInline onClick={() => setLooking(t)}>Look now</Button>}{' '}
        {may('DELETE', 'backuptargets') && t.name !== 'default' && <Button variant="link" isInline isDanger onClick={() => setDeleting(t)}>Delete</Button>}
      </>
    ) },
  ];
  return (
    <>
      <Head title="Backup targets" of={rows}>{may('POST', 'backuptargets') && <Button onClick={() => setEditing('new')}>Create backup target</Button>}</Head>
      <DataTable label="Backup targets" columns={columns} rows={rows} keyOf={id} failure={failure} empty="No backup target fits the filter." />
      {editing && <TargetDialog target={editing === 'new' ? undefined : editing} onClose={() => setEditing(undefined)} />}
      {looking && (
        <Dialog title={`Look into ${looking.name} now?`} label="Look" done="The list of backups follows what is found" onClose={() => setLooking(undefined)}
          run={() => act('backuptargets', looking.id, 'backupTargetSync', { syncBackupTarget: true })}>
          Backups that other clusters have made there appear, and what is gone from there disappears.
        </Dialog>
      )}
      {deleting && (
        <Dialog danger title={`Delete backup target ${deleting.name}?`} label="Delete" done="The backup target is being deleted" onClose={() => setDeleting(undefined)}
          run={() => call('DELETE', path('backuptargets', deleting))}>
          What is stored there stays. Its backups disappear from the list until there is a target with this URL again.
        </Dialog>
      )}
    </>
  );
}

export function BackupVolumes() {
  const { list: all, failure } = useStream<BackupVolume>('backupvolumes');
  const { may } = useAccess();
  const rows = usePicked(all, (b) => `${b.volumeName} ${b.backupTargetName}`);
  const [deleting, setDeleting] = useState<BackupVolume>();
  const columns: Column<BackupVolume>[] = [
    { title: 'Volume', cell: (b) => <Link to={`/backups/${encodeURIComponent(b.id)}`}>{b.volumeName || b.name}</Link>, by: (b) => b.volumeName },
    { title: 'Target', width: 12, cell: (b) => b.backupTargetName, by: (b) => b.backupTargetName },
    { title: 'Size', width: 8, cell: (b) => <Bytes of={b.size} />, by: (b) => Number(b.size) },
    { title: 'Stored', width: 8, cell: (b) => <Bytes of={b.dataStored} />, by: (b) => Number(b.dataStored) },
    { title: 'Last backup', width: 13, cell: (b) => <Time at={b.lastBackupAt} />, by: (b) => b.lastBackupAt },
    { title: 'Messages', wrap: true, cell: (b) => Object.values(b.messages ?? {}).join('; ') || '–' },
    { title: 'Actions', width: 9, cell: (b) => may('DELETE', 'backupvolumes') && <Button variant="link" isInline isDanger onClick={() => setDeleting(b)}>Delete all</Button> },
  ];
  return (
    <>
      <Head title="Backups" of={rows} />
      <DataTable label="Volumes with backups" columns={columns} rows={rows} keyOf={id} failure={failure}
        empty="There is no backup yet. Set the URL of a backup target, then back up a snapshot on a volume's page, or by a recurring job." />
      {deleting && (
        <Dialog danger title={`Delete all backups of ${deleting.volumeName}?`} label="Delete all" done="The backups are being deleted" onClose={() => setDeleting(undefined)}
          run={() => call('DELETE', path('backupvolumes', deleting))}>
          They are removed from {deleting.backupTargetName}, and nothing can be restored from them any more. The volume itself stays, if it is there.
        </Dialog>
      )}
    </>
  );
}

function RestoreDialog({ backup, onClose }: { backup: Backup; onClose: () => void }) {
  const [name, setName] = useState(`${backup.volumeName}-restored`);
  const [replicas, setReplicas] = useState('3');
  const [locality, setLocality] = useState('disabled');
  return (
    <Dialog title={`Restore ${backup.name}`} label="Restore" ready={!!name.trim()} done={`${name} is being restored`} onClose={onClose}
      run={() => call('POST', 'volumes', { name: name.trim(), size: backup.volumeSize, numberOfReplicas: Number(replicas), dataLocality: locality, frontend: 'blockdev',
        fromBackup: backup.url })}>
      <FormGroup label="Name of the new volume" fieldId="restored"><TextInput id="restored" autoFocus value={name} onChange={(_, v) => setName(v)} /></FormGroup>
      <FormGroup label="Replicas" fieldId="replicas"><TextInput id="replicas" type="number" value={replicas} onChange={(_, v) => setReplicas(v)} /></FormGroup>
      <Choice label="Data locality" id="locality" value={locality} options={['disabled', 'best-effort', 'strict-local']} onChange={setLocality} />
    </Dialog>
  );
}

export function Backups() {
  const { name = '' } = useParams();
  const volumes = useStream<BackupVolume>('backupvolumes').list;
  const { list: all, failure } = useStream<Backup>('backups');
  const { may } = useAccess();
  const of = volumes?.find((b) => b.id === name);
  const rows = of && usable(all, of);
  const [restoring, setRestoring] = useState<Backup>();
  const [deleting, setDeleting] = useState<Backup>();
  const columns: Column<Backup>[] = [
    { title: 'Backup', width: 14, cell: (b) => b.name, by: (b) => b.name },
    { title: 'State', width: 9, cell: (b) => <State of={b.state === 'InProgress' ? `${b.progress} %` : b.state} title={b.error} />, by: (b) => b.state },
    { title: 'Snapshot', cell: (b) => b.snapshotName, by: (b) => b.snapshotName },
    { title: 'Snapshot taken', width: 13, cell: (b) => <Time at={b.snapshotCreated} />, by: (b) => b.snapshotCreated },
    { title: 'Holds', width: 8, cell: (b) => <Bytes of={b.size} />, by: (b) => Number(b.size) },
    { title: 'Sent', width: 8, cell: (b) => <Bytes of={b.newlyUploadDataSize} />, by: (b) => Number(b.newlyUploadDataSize) },
    { title: 'Labels', cell: (b) => Object.entries(b.labels ?? {}).filter(([k]) => k !== 'KubernetesStatus').map(([k, v]) => `${k}=${v}`).join(', ') || '–' },
    { title: 'Error', wrap: true, cell: (b) => b.error || Object.values(b.messages ?? {}).join('; ') || '–' },
    { title: 'Actions', width: 11, cell: (b) => (
      <>
        {may('POST', 'volumes') && b.state === 'Completed' && <Button variant="link" isInline onClick={() => setRestoring(b)}>Restore</Button>}{' '}
        {may('backupDelete', 'backupvolumes') && <Button variant="link" isInline isDanger onClick={() => setDeleting(b)}>Delete</Button>}
      </>
    ) },
  ];
  return (
    <>
      <div className="ak-bar">
        <Title headingLevel="h1" size="xl">Backups of {of?.volumeName ?? name}</Title>
        <Quiet>{rows && <span role="status">{plural(rows.length, 'backup')}{of && ` in ${of.backupTargetName}`}</span>}</Quiet>
        <span className="ak-grow" />
        <Link to="/backups">All volumes</Link>
      </div>
      {volumes && !of ? <p role="status">There are no backups of it; they may have been deleted.</p> : (
        <DataTable label="Backups" columns={columns} rows={rows} keyOf={id} failure={failure} empty="There is no backup of this volume." />
      )}
      {restoring && <RestoreDialog backup={restoring} onClose={() => setRestoring(undefined)} />}
      {deleting && (
        <Dialog danger title={`Delete backup ${deleting.name}?`} label="Delete" done="The backup is being deleted" onClose={() => setDeleting(undefined)}
          run={() => act('backupvolumes', name, 'backupDelete', { name: deleting.name })}>
          It is removed from the backup target; blocks that other backups have too stay there.
        </Dialog>
      )}
    </>
  );
}

/** usable are the backups of a volume in its target, the newest first. */
const usable = (all: readonly Backup[] | undefined, of: BackupVolume) =>
  all?.filter((b) => b.volumeName === of.volumeName && b.backupTargetName === of.backupTargetName).sort((a, b) => b.snapshotCreated.localeCompare(a.snapshotCreated));
