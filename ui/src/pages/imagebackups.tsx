import { Button, Title } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useSearchParams } from 'react-router';
import { act, call, path } from '../api/client';
import { useStream } from '../api/stream';
import type { BackingImage, BackupBackingImage, BackupTarget } from '../api/wire';
import { Bytes, Dialog, Quiet, State, Time } from '../components/basics';
import { Choice, type Entry, Menu } from '../components/choice';
import { type Column, DataTable } from '../components/table';
import { plural } from '../format';
import { backupsToMake } from '../images';
import { useAccess } from '../session';
import { Filter, Pick, usePicked } from './lists';
import { BackupTabs } from './verification';

/** ImageBackupDialog orders a backup of each image that the target does not have. */
export function ImageBackupDialog({ of: images, onClose }: { of: BackingImage[]; onClose: () => void }) {
  const targets = useStream<BackupTarget>('backuptargets').list?.filter((t) => t.backupTargetURL) ?? [];
  const backups = useStream<BackupBackingImage>('backupbackingimages').list ?? [];
  const [chosen, setChosen] = useState('');
  const target = chosen || (targets.find((t) => t.name === 'default') ?? targets[0])?.name || '';
  const made = backupsToMake(images, backups, target);
  return (
    <Dialog title={images.length === 1 ? `Back up backing image ${images[0]?.name}` : `Back up ${plural(images.length, 'backing image')}`} label="Back up" ready={!!target && made.length > 0}
      done="The backup is being made" onClose={onClose}
      run={async () => { for (const b of made) await act('backingimages', b.id, 'backupBackingImageCreate', { backupTargetName: target }); }}>
      {targets.length === 0
        ? <p>No backup target has a URL. <Link to="/backuptargets">Set one</Link> first.</p>
        : <Choice id="target" label="Backup target" value={target} onChange={setChosen} options={targets.map((t): [string, string] => [t.name, `${t.name}: ${t.backupTargetURL}`])} />}
      {made.length < images.length && (
        <p role="status">{target} has a backup of {images.filter((b) => !made.includes(b)).map((b) => b.name).join(', ')} already, and a target has one of each name. <Link to="/backups-images">To the backups of images</Link></p>
      )}
      <Quiet>One of its disks reads the image; volumes that stand on it go on.</Quiet>
    </Dialog>
  );
}

export function ImageBackups() {
  const { list: all, failure } = useStream<BackupBackingImage>('backupbackingimages');
  const images = useStream<BackingImage>('backingimages').list;
  const { may } = useAccess();
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [doing, setDoing] = useState<{ what: 'restore' | 'delete'; of: BackupBackingImage[] }>();
  const target = useSearchParams()[0].get('target');
  const rows = usePicked(all, (b) => `${b.name} ${b.backingImageName} ${b.state}`)?.filter((b) => !target || b.backupTargetName === target);
  const picked = (all ?? []).filter((b) => selected.has(b.id));
  const there = (b: BackupBackingImage) => images?.some((i) => i.name === b.backingImageName);
  const unable = (b: BackupBackingImage) => (b.state !== 'Completed' ? `${b.name} is not complete` : there(b) ? `backing image ${b.backingImageName} is there` : undefined);
  const close = () => setDoing(undefined);
  const mayRestore = may('backupBackingImageRestore', 'backupbackingimages'), mayDelete = may('DELETE', 'backupbackingimages');
  const entries: Entry[] = [];
  if (picked.length > 0) {
    if (mayRestore) entries.push({ name: 'Restore…', run: () => setDoing({ what: 'restore', of: picked }), why: picked.map(unable).find(Boolean) });
    if (mayDelete) entries.push({ name: 'Delete…', danger: true, run: () => setDoing({ what: 'delete', of: picked }) });
  }
  const columns: Column<BackupBackingImage>[] = [
    { title: 'Backing image', cell: (b) => (there(b) ? <Link to={`/backingimages/${encodeURIComponent(b.backingImageName)}`}>{b.backingImageName}</Link> : b.backingImageName), by: (b) => b.backingImageName },
    { title: 'Backup', cell: (b) => b.name, by: (b) => b.name },
    { title: 'Target', width: 10, cell: (b) => b.backupTargetName, by: (b) => b.backupTargetName },
    { title: 'State', width: 9, cell: (b) => <State of={b.state === 'InProgress' ? `${b.progress} %` : b.state} title={b.error} />, by: (b) => b.state },
    { title: 'Size', width: 7, cell: (b) => (b.size > 0 ? <Bytes of={b.size} /> : '–'), by: (b) => b.size },
    { title: 'Complete since', width: 12, cell: (b) => <Time at={b.created} />, by: (b) => b.created },
    { title: 'Note', wrap: true, cell: (b) => b.error || Object.values(b.messages ?? {}).join('; ') || '–' },
    { title: 'Actions', width: 13, cell: (b) => (
      <>
        {mayRestore && !unable(b) && <Button variant="link" isInline onClick={() => setDoing({ what: 'restore', of: [b] })}>Restore</Button>}{' '}
        {mayDelete && <Button variant="link" isInline isDanger onClick={() => setDoing({ what: 'delete', of: [b] })}>Delete</Button>}
      </>
    ) },
  ];
  const list = doing && <ul className="ak-list">{doing.of.map((b) => <li key={b.id}>{b.backingImageName} from {b.backupTargetName}</li>)}</ul>;
  return (
    <>
      <div className="ak-bar">
        <Title headingLevel="h1" size="xl">Backups of backing images</Title>
        <Filter label="Backing image" />
        <Pick name="target" label="Target" options={[...new Set((all ?? []).map((b) => b.backupTargetName))].sort()} />
        <Quiet>{rows && <span role="status">{rows.length} shown</span>}</Quiet>
        <span className="ak-grow" />
        <BackupTabs at="images" />
        <Menu label="Actions" entries={entries} />
      </div>
      <DataTable label="Backups of backing images" columns={columns} rows={rows} keyOf={(b) => b.id} failure={failure} selected={{ keys: selected, onChange: setSelected }}
        empty="There is no backup of a backing image. The actions of a backing image make one." />
      {doing?.what === 'restore' && (
        <Dialog title={`Restore ${plural(doing.of.length, 'backing image')}?`} label="Restore" done="The backing image is being restored" onClose={close}
          run={async () => { for (const b of doing.of) await act('backupbackingimages', b.id, 'backupBackingImageRestore', { dataEngine: 'v1' }); }}>
          It comes back under its own name, with as many copies as the setting says:
          {list}
        </Dialog>
      )}
      {doing?.what === 'delete' && (
        <Dialog danger title={`Delete ${plural(doing.of.length, 'backup')}?`} label="Delete" done="The backup is being deleted" onClose={close}
          run={() => Promise.all(doing.of.map((b) => call('DELETE', path('backupbackingimages', b))))}>
          Removed from the backup target; images that are there stay:
          {list}
        </Dialog>
      )}
    </>
  );
}
