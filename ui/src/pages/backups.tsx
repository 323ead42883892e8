import { Button, Title } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useNavigate, useParams, useSearchParams } from 'react-router';
import { act, call, path } from '../api/client';
import { useStream } from '../api/stream';
import type { Backup, BackupVerification, BackupVolume } from '../api/wire';
import { Bytes, Dialog, Quiet, State, Time, useTell } from '../components/basics';
import { type Entry, Menu } from '../components/choice';
import { type Column, DataTable } from '../components/table';
import { plural } from '../format';
import { useAccess } from '../session';
import { type Claimed, claimedOf } from '../usage';
import { backupResult } from '../verification';
import { Filter, Pick, usePicked } from './lists';
import { RestoreDialog } from './restore';
import { BackupTabs, useMayVerify, useVerification, Verification, VerifyDialog } from './verification';

const id = (o: { id: string }) => o.id;

/** usages remembers what labels say, which is JSON: rows are sorted and filtered by it. */
const usages = new WeakMap<object, Claimed>();
function usageOf(o: { labels?: Record<string, string> | null }): Claimed {
  const known = usages.get(o) ?? claimedOf(o.labels);
  usages.set(o, known);
  return known;
}

interface BarProps<T> {
  title: string;
  all?: readonly T[];
  rows?: readonly T[];
  children: React.ReactNode;
}

function Bar<T extends { backupTargetName: string; labels?: Record<string, string> | null }>({ title, all, rows, children }: BarProps<T>) {
  const distinct = (f: (o: T) => string) => [...new Set((all ?? []).map(f).filter(Boolean))].sort();
  return (
    <div className="ak-bar">
      <Title headingLevel="h1" size="xl">{title}</Title>
      <Filter label="Volume, claim, Pod" />
      <Pick name="target" label="Target" options={distinct((o) => o.backupTargetName)} />
      <Pick name="namespace" label="Namespace" options={distinct((o) => usageOf(o).namespace)} />
      <Quiet>{rows && <span role="status">{rows.length} shown</span>}</Quiet>
      <span className="ak-grow" />
      {children}
    </div>
  );
}

/** useFitting keeps what fits the filters of the bar. */
function useFitting<T extends { backupTargetName: string; volumeName: string; labels?: Record<string, string> | null }>(all: readonly T[] | undefined, text: (o: T) => string) {
  const [params] = useSearchParams();
  const target = params.get('target'), namespace = params.get('namespace');
  return usePicked(all, (o) => `${text(o)} ${usageOf(o).text}`)?.filter((o) => (!target || o.backupTargetName === target) &&
    (!namespace || usageOf(o).namespace === namespace));
}

export function BackupVolumes() {
  const { list: all, failure } = useStream<BackupVolume>('backupvolumes');
  const backups = useStream<Backup>('backups').list;
  const { may } = useAccess();
  const mayVerify = useMayVerify();
  const navigate = useNavigate();
  const rows = useFitting(all, (b) => `${b.volumeName} ${b.backupTargetName}`);
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [doing, setDoing] = useState<'restore' | 'standby' | 'verify' | 'look' | 'delete'>();
  const picked = (all ?? []).filter((b) => selected.has(b.id));
  const latestOf = (v: BackupVolume) => backups?.find((b) => b.name === v.lastBackupName && belongs(b, v) && b.state === 'Completed');
  const latest = picked.flatMap((v) => latestOf(v) ?? []);
  const entries: Entry[] = [];
  if (picked.length > 0) {
    const none = latest.length < picked.length ? 'one of them has no complete backup' : undefined;
    if (may('POST', 'volumes')) {
      entries.push({ name: 'Restore the latest backup…', run: () => setDoing('restore'), why: none },
        { name: 'Create standby volume…', run: () => setDoing('standby'), why: none });
    }
    if (mayVerify) entries.push({ name: 'Verify…', run: () => setDoing('verify') });
    if (may('backupVolumeSync', 'backupvolumes')) entries.push({ name: 'Look now…', run: () => setDoing('look') });
    if (may('DELETE', 'backupvolumes')) entries.push({ name: 'Delete all backups…', danger: true, run: () => setDoing('delete') });
  }
  const close = () => setDoing(undefined);
  const columns: Column<BackupVolume>[] = [
    { title: 'Volume', cell: (b) => <Link to={`/backups/${encodeURIComponent(b.id)}`}>{b.volumeName || b.name}</Link>, by: (b) => b.volumeName },
    { title: 'Target', width: 10, cell: (b) => b.backupTargetName, by: (b) => b.backupTargetName },
    { title: 'Size', width: 7, cell: (b) => <Bytes of={b.size} />, by: (b) => Number(b.size) },
    { title: 'Stored', width: 7, cell: (b) => <Bytes of={b.dataStored} />, by: (b) => Number(b.dataStored) },
    { title: 'Last backup', width: 12, cell: (b) => <Time at={b.lastBackupAt} />, by: (b) => b.lastBackupAt },
    { title: 'Latest restore point', width: 13, cell: (b) => <Time at={latestOf(b)?.snapshotCreated} />, by: (b) => latestOf(b)?.snapshotCreated ?? '' },
    { title: 'Claim', cell: (b) => usageOf(b).claim || '–', by: (b) => usageOf(b).claim },
    { title: 'Pods', cell: (b) => usageOf(b).pods || '–', by: (b) => usageOf(b).pods },
    { title: 'Messages', wrap: true, cell: (b) => Object.values(b.messages ?? {}).join('; ') || '–' },
  ];
  return (
    <>
      <Bar title="Backups" all={all} rows={rows}><BackupTabs at="volumes" /><Menu label="Actions" entries={entries} /></Bar>
      <DataTable label="Volumes with backups" columns={columns} rows={rows} keyOf={id} failure={failure} selected={{ keys: selected, onChange: setSelected }}
        empty="There is no backup yet. Set the URL of a backup target, then back up a snapshot on a volume's page, or by a recurring job." />
      {(doing === 'restore' || doing === 'standby') && <RestoreDialog backups={latest} standby={doing === 'standby'} onClose={close} />}
      {doing === 'verify' && <VerifyDialog volumes={picked} onClose={close} after={() => void navigate('/backups-verification')} />}
      {doing === 'look' && (
        <Dialog title={`Look for backups of ${plural(picked.length, 'volume')} now?`} label="Look" done="The list follows what is found" onClose={close}
          run={() => Promise.all(picked.map((v) => act('backupvolumes', v.id, 'backupVolumeSync', { syncBackupVolume: true })))}>
          Backups that other clusters have made appear, and what is gone from the store disappears.
        </Dialog>
      )}
      {doing === 'delete' && (
        <Dialog danger title={`Delete all backups of ${plural(picked.length, 'volume')}?`} label="Delete all" done="The backups are being deleted" onClose={close}
          run={() => Promise.all(picked.map((v) => call('DELETE', path('backupvolumes', v))))}>
          They are removed from their targets, and nothing can be restored from them any more. The volumes themselves stay, where they are there.
          <ul className="ak-list">{picked.map((v) => <li key={v.id}>{v.volumeName} in {v.backupTargetName}, {plural((backups ?? []).filter((b) => belongs(b, v)).length, 'backup')}</li>)}</ul>
        </Dialog>
      )}
    </>
  );
}

/** says is what is told of a backup that is not complete. */
const says = (b: Backup) => b.error || Object.values(b.messages ?? {}).join('; ');

/** BackupTable is a list of backups with what can be done with them. */
function BackupTable({ rows, failure, empty, withVolume, title, all, volumes, verified }: { rows?: Backup[]; failure?: string; empty: string; withVolume?: boolean; title: string; all?: readonly Backup[];
  volumes?: readonly BackupVolume[]; verified?: BackupVerification }) {
  const { may } = useAccess();
  const mayVerify = useMayVerify();
  const navigate = useNavigate();
  const tell = useTell();
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [doing, setDoing] = useState<{ what: 'restore' | 'verify' | 'delete'; backups: Backup[] }>();
  const picked = (rows ?? []).filter((b) => selected.has(b.id));
  const entries: Entry[] = [];
  if (picked.length > 0) {
    if (may('POST', 'volumes')) {
      entries.push({ name: 'Restore…', run: () => setDoing({ what: 'restore', backups: picked }),
        why: picked.every((b) => b.state === 'Completed') ? undefined : 'one of them is not complete' });
    }
    if (may('backupDelete', 'backupvolumes')) entries.push({ name: 'Delete…', danger: true, run: () => setDoing({ what: 'delete', backups: picked }) });
  }
  const copy = (b: Backup) => navigator.clipboard.writeText(b.url)
    .then(() => tell('success', `The URL of ${b.name} is in the clipboard`), () => tell('danger', 'The browser does not give the clipboard', b.url));
  const of = (b: Backup) => volumes?.find((v) => belongs(b, v));
  const remove = (b: Backup) => act('backupvolumes', of(b)?.id ?? b.volumeName, 'backupDelete', { name: b.name });
  const verifying = doing?.what === 'verify' ? doing.backups.flatMap((b) => of(b) ?? []) : [];
  const columns: Column<Backup>[] = [
    { title: 'Backup', width: 13, cell: (b) => b.name, by: (b) => b.name },
    ...(withVolume ? [{ title: 'Volume', cell: (b: Backup) => b.volumeName, by: (b: Backup) => b.volumeName },
      { title: 'Target', width: 8, cell: (b: Backup) => b.backupTargetName, by: (b: Backup) => b.backupTargetName }] : []),
    { title: 'State', width: 8, cell: (b) => <State of={b.state === 'InProgress' ? `${b.progress} %` : b.state} title={b.error} />, by: (b) => b.state },
    ...(verified ? [{ title: 'Verified', width: 8, cell: (b: Backup) => <State of={backupResult(verified, b.name)} />, by: (b: Backup) => backupResult(verified, b.name) }] : []),
    { title: 'Snapshot', cell: (b) => <span title={b.snapshotName}>{b.snapshotName}</span>, by: (b) => b.snapshotName },
    { title: 'Snapshot taken', width: 12, cell: (b) => <Time at={b.snapshotCreated} />, by: (b) => b.snapshotCreated },
    { title: 'Mode', width: 8, cell: (b) => b.backupMode || '–', by: (b) => b.backupMode },
    { title: 'Holds', width: 7, cell: (b) => <Bytes of={b.size} />, by: (b) => Number(b.size) },
    { title: 'Sent', width: 7, cell: (b) => <span title={`${b.reUploadedDataSize || 0} bytes of it again`}><Bytes of={b.newlyUploadDataSize} /></span>, by: (b) => Number(b.newlyUploadDataSize) },
    ...(withVolume ? [{ title: 'Claim', cell: (b: Backup) => usageOf(b).claim || '–', by: (b: Backup) => usageOf(b).claim }] : []),
    { title: 'Labels', cell: (b) => usageOf(b).others || '–' },
    ...(rows?.some(says) ? [{ title: 'Error', wrap: true, cell: (b: Backup) => says(b) || '–' }] : []),
    { title: 'Actions', width: 17, cell: (b) => (
      <>
        {may('POST', 'volumes') && b.state === 'Completed' && <Button variant="link" isInline onClick={() => setDoing({ what: 'restore', backups: [b] })}>Restore</Button>}{' '}
        {b.url && <Button variant="link" isInline onClick={() => void copy(b)}>Copy URL</Button>}{' '}
        {mayVerify && b.state === 'Completed' && of(b) && <Button variant="link" isInline onClick={() => setDoing({ what: 'verify', backups: [b] })}>Verify</Button>}{' '}
        {may('backupDelete', 'backupvolumes') && <Button variant="link" isInline isDanger onClick={() => setDoing({ what: 'delete', backups: [b] })}>Delete</Button>}
      </>
    ) },
  ];
  return (
    <>
      <Bar title={title} all={all} rows={rows}><BackupTabs at={withVolume ? 'all' : undefined} />{picked.length > 0 && <Quiet>{picked.length} selected</Quiet>}<Menu label="Actions" entries={entries} /></Bar>
      <DataTable label="Backups" columns={columns} rows={rows} keyOf={id} failure={failure} empty={empty} selected={{ keys: selected, onChange: setSelected }} />
      {doing?.what === 'restore' && <RestoreDialog backups={doing.backups} onClose={() => setDoing(undefined)} />}
      {verifying.length > 0 && (
        <VerifyDialog volumes={verifying} onClose={() => setDoing(undefined)} after={() => void navigate(`/backups/${encodeURIComponent(verifying[0]?.id ?? '')}`)} />
      )}
      {doing?.what === 'delete' && (
        <Dialog danger title={doing.backups.length === 1 ? `Delete backup ${doing.backups[0]?.name}?` : `Delete ${plural(doing.backups.length, 'backup')}?`} label="Delete"
          done={doing.backups.length === 1 ? 'The backup is being deleted' : 'The backups are being deleted'} onClose={() => setDoing(undefined)} run={() => Promise.all(doing.backups.map(remove))}>
          Removed from the backup target; blocks that other backups have too stay there:
          <ul className="ak-list">{doing.backups.map((b) => <li key={b.id}>{b.name} of {b.volumeName}, snapshot {b.snapshotName}</li>)}</ul>
        </Dialog>
      )}
    </>
  );
}

const belongs = (b: Backup, v: BackupVolume) => b.volumeName === v.volumeName && b.backupTargetName === v.backupTargetName;
const newestFirst = (all: readonly Backup[] | undefined) => all && [...all].sort((a, b) => b.snapshotCreated.localeCompare(a.snapshotCreated));

export function AllBackups() {
  const { list: all, failure } = useStream<Backup>('backups');
  const volumes = useStream<BackupVolume>('backupvolumes').list;
  const rows = newestFirst(useFitting(all, (b) => `${b.name} ${b.volumeName} ${b.snapshotName} ${b.state}`));
  return <BackupTable withVolume title="All backups" all={all} rows={rows} volumes={volumes} failure={failure} empty="No backup fits the filters." />;
}

export function Backups() {
  const { name = '' } = useParams();
  const volumes = useStream<BackupVolume>('backupvolumes').list;
  const { list: all, failure } = useStream<Backup>('backups');
  const of = volumes?.find((b) => b.id === name);
  const own = of && all?.filter((b) => belongs(b, of));
  const verified = useVerification(of).data;
  const rows = newestFirst(useFitting(own, (b) => `${b.name} ${b.snapshotName} ${b.state}`));
  if (volumes && !of) {
    return (
      <>
        <Title headingLevel="h1" size="xl">Backups of {name}</Title>
        <p role="status">There are no backups of it; they may have been deleted. <Link to="/backups">To the volumes that have backups</Link></p>
      </>
    );
  }
  return (
    <>
      <BackupTable title={`Backups of ${of?.volumeName ?? name}`} all={own} rows={rows} volumes={volumes} verified={verified} failure={failure} empty="There is no backup of this volume." />
      {of && <Verification of={of} />}
    </>
  );
}
