import { Button, FormGroup, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { useNavigate } from 'react-router';
import { act, call, path } from '../api/client';
import { useStream } from '../api/stream';
import type { BackupTarget, BackupVolume } from '../api/wire';
import { Dialog, Quiet, State } from '../components/basics';
import { type Column, DataTable } from '../components/table';
import { seconds } from '../format';
import { useAccess } from '../session';
import { Head, usePicked } from './lists';
import { useMayVerify, VerifyDialog } from './verification';

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
      <FormGroup label="URL, such as s3://bucket@region/path or nfs://server:/path" fieldId="url"><TextInput id="url" value={url} onChange={(_, v) => setURL(v)} /></FormGroup>
      <FormGroup label="Secret with the credentials, in the system's namespace" fieldId="secret"><TextInput id="secret" value={secret} onChange={(_, v) => setSecret(v)} /></FormGroup>
      <FormGroup label="Look every so many seconds (0: never)" fieldId="poll"><TextInput id="poll" type="number" value={poll} onChange={(_, v) => setPoll(v)} /></FormGroup>
    </Dialog>
  );
}

export function BackupTargets() {
  const { list: all, failure } = useStream<BackupTarget>('backuptargets');
  const volumes = useStream<BackupVolume>('backupvolumes').list;
  const { may } = useAccess();
  const mayVerify = useMayVerify();
  const navigate = useNavigate();
  const of = (t: BackupTarget) => (volumes ?? []).filter((v) => v.backupTargetName === t.name);
  const rows = usePicked(all, (t) => `${t.name} ${t.backupTargetURL}`);
  const [editing, setEditing] = useState<BackupTarget | 'new'>();
  const [deleting, setDeleting] = useState<BackupTarget>();
  const [looking, setLooking] = useState<BackupTarget>();
  const [verifying, setVerifying] = useState<BackupTarget>();
  const columns: Column<BackupTarget>[] = [
    { title: 'Name', width: 12, cell: (t) => t.name, by: (t) => t.name },
    { title: 'State', width: 10, cell: (t) => (t.backupTargetURL ? <State of={t.available ? 'available' : 'unavailable'} /> : <Quiet>no URL</Quiet>), by: (t) => String(t.available) },
    { title: 'URL', cell: (t) => <span className="ak-mono" title={t.backupTargetURL}>{t.backupTargetURL || '–'}</span>, by: (t) => t.backupTargetURL },
    { title: 'Secret', width: 12, cell: (t) => t.credentialSecret || '–' },
    { title: 'Looks every', width: 8, cell: (t) => (seconds(t.pollInterval) ? t.pollInterval : 'never') },
    { title: 'Why it is not available', wrap: true, cell: (t) => t.message || '–' },
    { title: 'Actions', width: 16, cell: (t) => (
      <>
        {may('backupTargetUpdate', 'backuptargets') && <Button variant="link" isInline onClick={() => setEditing(t)}>Edit</Button>}{' '}
        {may('backupTargetSync', 'backuptargets') && t.backupTargetURL && <Button variant="link" isInline onClick={() => setLooking(t)}>Look now</Button>}{' '}
        {mayVerify && t.available && of(t).length > 0 && <Button variant="link" isInline onClick={() => setVerifying(t)}>Verify</Button>}{' '}
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
      {verifying && (
        <VerifyDialog volumes={of(verifying)} onClose={() => setVerifying(undefined)} after={() => void navigate(`/backups-verification?target=${encodeURIComponent(verifying.name)}`)} />
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
