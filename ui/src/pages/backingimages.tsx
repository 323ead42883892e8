import { Button, Progress, Title } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useNavigate, useParams, useSearchParams } from 'react-router';
import { useStream } from '../api/stream';
import type { BackingImage, Event, Node, Volume } from '../api/wire';
import { Bytes, Facts, Quiet, Section, State, Time, Why } from '../components/basics';
import { Menu } from '../components/choice';
import { type Optional, useColumns } from '../components/columns';
import { type Column, DataTable } from '../components/table';
import { plural } from '../format';
import { type Copy, copiesOf, imageProgress, imageState, imageStates, readyCopies, sourceOf, sourceTypes, usersOf } from '../images';
import { useAccess } from '../session';
import { CreateImage, downloadOf, ImageDialog, type ImageDoing, useImageEntries } from './imagedialogs';
import { eventColumns, Filter, newest, Pick } from './lists';
import { HealthLabel } from './volumes';

/** ImageLabel is the state of an image, with why on hover. */
function ImageLabel({ of: b }: { of: BackingImage }) {
  const come = imageProgress(b);
  return (
    <>
      <State of={imageState(b)} title={(b.waitsFor ?? []).join('\n') || undefined} />
      {come !== undefined && <Quiet> {come} %</Quiet>}
    </>
  );
}

const Download = ({ of: b }: { of: BackingImage }) => (readyCopies(b) > 0 && !b.deletionTimestamp
  ? <a href={downloadOf(b)} download aria-label={`Download ${b.name}`} title="The file, packed by gzip">Download</a> : null);

/** Unknown sizes are 0 until the first copy is there. */
const Known = ({ of }: { of: number }) => (of > 0 ? <Bytes of={of} /> : <>–</>);

const text = (b: BackingImage) => [b.name, b.uuid, sourceOf(b), b.currentChecksum, ...(b.nodeSelector ?? []), ...(b.diskSelector ?? [])].join(' ').toLowerCase();

export function BackingImages() {
  const { list: all, failure } = useStream<BackingImage>('backingimages');
  const nodes = useStream<Node>('nodes').list;
  const volumes = useStream<Volume>('volumes').list;
  const { may } = useAccess();
  const [params] = useSearchParams();
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [creating, setCreating] = useState(false);
  const [doing, setDoing] = useState<{ what: ImageDoing; ids: string[] }>();
  const entries = useImageEntries();
  const copies = (b: BackingImage) => copiesOf(b, nodes, volumes);
  const columns: Optional<BackingImage>[] = [
    { title: 'Name', fixed: true, cell: (b) => <Link to={`/backingimages/${encodeURIComponent(b.name)}`} title={b.name}>{b.name}</Link>, by: (b) => b.name },
    { title: 'State', fixed: true, width: 11, cell: (b) => <ImageLabel of={b} />, by: (b) => imageStates.indexOf(imageState(b)) },
    { title: 'Copies', width: 8, cell: (b) => <span title={copies(b).map((c) => `${c.node || c.disk} ${c.name}: ${c.state}`).join('\n')}>{readyCopies(b)} of {b.minNumberOfCopies}</span>, by: readyCopies },
    { title: 'Size', width: 6.5, cell: (b) => <Known of={b.size} />, by: (b) => b.size },
    { title: 'Virtual size', width: 8.5, cell: (b) => <Known of={b.virtualSize} />, by: (b) => b.virtualSize },
    { title: 'From', cell: (b) => <span title={sourceOf(b)}>{sourceOf(b)}</span>, by: sourceOf },
    { title: 'Used by', width: 8, cell: (b) => {
      const users = usersOf(b.name, volumes);
      return users.length > 0 ? <span title={users.map((v) => v.name).join('\n')}>{plural(users.length, 'volume')}</span> : <Quiet>nobody</Quiet>;
    }, by: (b) => usersOf(b.name, volumes).length },
    { title: 'SHA-512', width: 9, cell: (b) => <span className="ak-mono" title={b.currentChecksum}>{b.currentChecksum || '–'}</span> },
    { title: 'Tags', away: true, cell: (b) => [...(b.nodeSelector ?? []), ...(b.diskSelector ?? [])].join(', ') || '–' },
    { title: 'Encrypted', away: true, width: 7.5, cell: (b) => (b.secret ? 'yes' : 'no'), by: (b) => String(!!b.secret) },
    { title: 'UUID', away: true, width: 8, cell: (b) => b.uuid || '–', by: (b) => b.uuid },
    { title: 'Actions', fixed: true, width: 11, cell: (b) => (
      <><Download of={b} /> <Menu label={`Actions of ${b.name}`} icon="⋮" entries={entries([b], (what) => setDoing({ what, ids: [b.id] }))} /></>
    ) },
  ];
  const [shown, choice] = useColumns('backing images', columns);
  const word = (params.get('q') ?? '').toLowerCase();
  const state = params.get('state'), from = params.get('from'), node = params.get('node');
  const rows = all?.filter((b) => (!word || text(b).includes(word)) && (!state || imageState(b) === state) && (!from || (sourceTypes[b.sourceType] ?? b.sourceType) === from) &&
    (!node || copies(b).some((c) => c.node === node)));
  const of = (ids: Iterable<string>) => [...ids].map((id) => all?.find((b) => b.id === id)).filter((b) => b !== undefined);
  const picked = of(selected);
  const acting = of(doing?.ids ?? []);
  const changes = entries(picked, (what) => setDoing({ what, ids: picked.map((b) => b.id) }));
  return (
    <>
      <div className="ak-bar">
        <Title headingLevel="h1" size="xl">Backing images</Title>
        <Filter label="Name, URL, checksum, tag" />
        <Pick name="state" label="State" options={imageStates} />
        <Pick name="from" label="From" options={Object.values(sourceTypes)} />
        <Pick name="node" label="Node" options={(nodes ?? []).map((n) => n.name)} />
        <Quiet>{rows && <span role="status">{rows.length === all?.length ? rows.length : `${rows.length} of ${all?.length}`} shown</span>}</Quiet>
        <span className="ak-grow" />
        {picked.length > 0 && <Quiet>{picked.length} selected</Quiet>}
        <Link to="/backups-images">Backups</Link>
        {choice}
        <Menu label="Actions" entries={changes} />
        {may('POST', 'backingimages') && <Button onClick={() => setCreating(true)}>Create backing image</Button>}
      </div>
      <DataTable label="Backing images" columns={shown} rows={rows} keyOf={(b) => b.id} failure={failure}
        selected={may('DELETE', 'backingimages') ? { keys: selected, onChange: setSelected } : undefined}
        empty={all?.length ? 'No backing image fits the filters.'
          : `There is no backing image. ${may('POST', 'backingimages') ? 'Create one from a URL or a file' : 'Who may create them makes one from a URL or a file'}; volumes made from it begin with its content.`} />
      {creating && <CreateImage onClose={() => setCreating(false)} />}
      {doing && acting.length > 0 && <ImageDialog what={doing.what} images={acting} onClose={() => setDoing(undefined)} />}
    </>
  );
}

const copyColumns: Column<Copy>[] = [
  { title: 'Node', width: 10, cell: (c) => (c.node ? <Link to={`/nodes/${encodeURIComponent(c.node)}`}>{c.node}</Link> : <Quiet>no node</Quiet>), by: (c) => c.node },
  { title: 'Disk', cell: (c) => <span title={`UUID ${c.disk}`}>{c.name || c.disk}</span>, by: (c) => c.name },
  { title: 'State', width: 10, cell: (c) => (c.state ? <State of={c.state} /> : '–'), by: (c) => c.state },
  { title: 'Progress', width: 12, cell: (c) => (c.state === 'in-progress' ? <Progress aria-label={`Progress on ${c.node || c.disk}`} size="sm" value={c.progress} /> : '–') },
  { title: 'Used by', cell: (c) => <span title={c.volumes.join('\n')}>{c.volumes.join(', ') || '–'}</span> },
  { title: 'Message', wrap: true, cell: (c) => c.message || '–' },
  { title: 'Since', width: 12, cell: (c) => <Time at={c.since} /> },
];

const volumeColumns: Column<Volume>[] = [
  { title: 'Volume', cell: (v) => <Link to={`/volumes/${encodeURIComponent(v.name)}`}>{v.name}</Link>, by: (v) => v.name },
  { title: 'State', width: 12, cell: (v) => <HealthLabel of={v} /> },
  { title: 'Size', width: 7, cell: (v) => <Bytes of={v.size} />, by: (v) => Number(v.size) },
  { title: 'Replicas on', cell: (v) => [...new Set((v.replicas ?? []).map((r) => r.hostId).filter(Boolean))].sort().join(', ') || '–' },
];

/** checked says what is known of the content of an image. */
const checked = (b: BackingImage) => {
  if (!b.currentChecksum) return b.expectedChecksum ? 'expected, not read yet' : '';
  return b.expectedChecksum ? (b.expectedChecksum === b.currentChecksum ? 'as expected' : 'not the one expected') : 'none was expected';
};

export function BackingImagePage() {
  const { name = '' } = useParams();
  const { list: all, failure } = useStream<BackingImage>('backingimages');
  const nodes = useStream<Node>('nodes').list;
  const volumes = useStream<Volume>('volumes').list;
  const events = useStream<Event>('events').list;
  const [doing, setDoing] = useState<ImageDoing>();
  const navigate = useNavigate();
  const entries = useImageEntries();
  const b = all?.find((o) => o.name === name);
  if (!b) {
    return (
      <>
        <Title headingLevel="h1" size="xl">{name}</Title>
        <p role="status">{all ? <>There is no backing image of this name; it may have been deleted. <Link to="/backingimages">To the backing images</Link></> : (failure ?? 'Loading…')}</p>
      </>
    );
  }
  const copies = copiesOf(b, nodes, volumes);
  const own = newest(events?.filter((e) => e.event.involvedObject.kind.startsWith('BackingImage') && e.event.involvedObject.name === b.name));
  return (
    <>
      <div className="ak-bar">
        <Title headingLevel="h1" size="xl">{b.name}</Title>
        <ImageLabel of={b} />
        <span className="ak-grow" />
        <Download of={b} />
        <Menu label="Actions" entries={entries([b], setDoing)} />
      </div>
      <Why of={b.waitsFor} danger={imageState(b) === 'Failed'} command={`ankole backing-image describe ${b.name}`} />
      <Section title="Backing image">
        <Facts of={[['Size', b.size > 0 && <Bytes of={b.size} />], ['Virtual size, the least of its volumes', b.virtualSize > 0 && <Bytes of={b.virtualSize} />], ['Copies at least', b.minNumberOfCopies],
          ['From', sourceTypes[b.sourceType] ?? b.sourceType], ...Object.entries(b.parameters ?? {}).map(([key, value]): [string, string] => [`Parameter ${key}`, value]),
          ['Node tags', (b.nodeSelector ?? []).join(', ')], ['Disk tags', (b.diskSelector ?? []).join(', ')], ['UUID', b.uuid],
          ['Encrypted with the key in Secret', b.secret && `${b.secretNamespace}/${b.secret}`], ['Checksum', checked(b)]]} />
        {b.currentChecksum && <p>SHA-512 <span className="ak-mono ak-break">{b.currentChecksum}</span></p>}
        {b.expectedChecksum && b.expectedChecksum !== b.currentChecksum && <p>Expected <span className="ak-mono ak-break">{b.expectedChecksum}</span></p>}
      </Section>
      <Section title="Copies">
        <DataTable label="Copies" columns={copyColumns} rows={copies} keyOf={(c) => c.disk} empty="No disk has been chosen for a copy yet." />
      </Section>
      <Section title="Volumes">
        <DataTable label="Volumes" columns={volumeColumns} rows={volumes && usersOf(b.name, volumes)} keyOf={(v) => v.id} sortKey="volumes"
          empty="No volume is made from it. The dialog of a new volume and parameter backingImage of a StorageClass make one." />
      </Section>
      <Section title="Events">
        <DataTable label="Events" columns={eventColumns} rows={own} keyOf={(e) => e.id} empty="There was no event in the last hour." sortKey="events" />
      </Section>
      {doing && <ImageDialog what={doing} images={[b]} onClose={() => setDoing(undefined)} after={() => void navigate('/backingimages')} />}
    </>
  );
}
