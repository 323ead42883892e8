import type { BackingImage, BackupBackingImage, Node, Volume } from './api/wire';

export type ImageState = 'Ready' | 'Degraded' | 'In progress' | 'Waiting' | 'Unknown' | 'Failed' | 'Deleting';
export const imageStates: ImageState[] = ['Ready', 'Degraded', 'In progress', 'Waiting', 'Unknown', 'Failed', 'Deleting'];

type Files = Pick<BackingImage, 'deletionTimestamp' | 'diskFileStatusMap' | 'minNumberOfCopies' | 'sourceType'>;

const coming = ['starting', 'in-progress', 'ready-for-transfer'];
const files = (b: Files) => Object.values(b.diskFileStatusMap ?? {});
export const readyCopies = (b: Files) => files(b).filter((f) => f.state === 'ready').length;

/** imageState puts each image into exactly one class. One copy is enough to make volumes from it. */
export function imageState(b: Files): ImageState {
  const all = files(b), ready = readyCopies(b);
  if (b.deletionTimestamp) return 'Deleting';
  if (ready > 0) return ready >= b.minNumberOfCopies && ready === all.length ? 'Ready' : 'Degraded';
  if (all.some((f) => coming.includes(f.state))) return 'In progress';
  if (all.some((f) => f.state === 'unknown')) return 'Unknown';
  return all.some((f) => f.state.startsWith('failed')) ? 'Failed' : 'Waiting';
}

/** imageProgress is how much of the copies that come has come, in per cent; undefined if none comes. */
export function imageProgress(b: Files): number | undefined {
  const running = files(b).filter((f) => f.state === 'in-progress');
  return running.length ? Math.round(running.reduce((sum, f) => sum + f.progress, 0) / running.length) : undefined;
}

/** takesUpload: an image waits for a file of the user. While nobody can take it yet its message says why. */
export const takesUpload = (b: Files) => b.sourceType === 'upload' && !b.deletionTimestamp && readyCopies(b) === 0 &&
  files(b).some((f) => (f.state === 'pending' && !f.message) || f.state === 'failed') && !files(b).some((f) => coming.includes(f.state));

/** mayBeUploaded: nobody has sent the file yet, or not whole. */
export const mayBeUploaded = (b: Files) => b.sourceType === 'upload' && ['Waiting', 'Failed'].includes(imageState(b));

export const sourceTypes: Record<string, string> = { download: 'download', upload: 'upload', 'export-from-volume': 'volume', clone: 'another image', restore: 'backup' };

/** sourceOf says where an image comes from. */
export function sourceOf(b: Pick<BackingImage, 'sourceType' | 'parameters'>): string {
  const p = b.parameters ?? {};
  switch (b.sourceType) {
    case 'download': return p.url ?? 'download';
    case 'export-from-volume': return `volume ${p['volume-name'] ?? ''}`.trim();
    case 'clone': return `image ${p['backing-image'] ?? ''}`.trim();
    case 'restore': return p['backup-target-name'] ? `backup on ${p['backup-target-name']}` : 'backup';
    default: return sourceTypes[b.sourceType] ?? b.sourceType;
  }
}

/** backupsToMake are the images that a target has no backup of: it has one of each name. */
export const backupsToMake = <T extends Pick<BackingImage, 'name'>>(images: readonly T[], backups: readonly Pick<BackupBackingImage, 'backingImageName' | 'backupTargetName'>[], target: string) =>
  images.filter((b) => !backups.some((o) => o.backingImageName === b.name && o.backupTargetName === target));

export const usersOf = (image: string, volumes: readonly Volume[] | undefined) => (volumes ?? []).filter((v) => v.backingImage === image);

/** Copy is a file of an image on a disk. */
export interface Copy {
  disk: string;
  /** node and name of the disk, empty where no node reports it. */
  node: string;
  name: string;
  state: string;
  progress: number;
  message: string;
  since: string;
  /** volumes whose replicas stand on it. */
  volumes: string[];
}

export function copiesOf(b: Pick<BackingImage, 'name' | 'diskFileStatusMap'>, nodes: readonly Node[] | undefined, volumes: readonly Volume[] | undefined): Copy[] {
  const users = usersOf(b.name, volumes);
  return Object.entries(b.diskFileStatusMap ?? {}).map(([disk, f]) => {
    const [node, name] = (nodes ?? []).flatMap((n) => Object.entries(n.disks ?? {}).filter(([, d]) => d.diskUUID === disk).map(([d]) => [n.name, d]))[0] ?? ['', ''];
    return { disk, node: node ?? '', name: name ?? '', state: f.state, progress: f.progress, message: f.message, since: f.lastStateTransitionTime,
      volumes: users.filter((v) => (v.replicas ?? []).some((r) => r.diskID === disk)).map((v) => v.name) };
  }).sort((a, c) => `${a.node}/${a.name}/${a.disk}`.localeCompare(`${c.node}/${c.name}/${c.disk}`, undefined, { numeric: true }));
}

export const placeOf = (c: Copy) => (c.node ? `${c.node}, disk ${c.name}` : `disk ${c.disk}, which no node reports`);

/** checksumProblem says what is wrong with a checksum that somebody typed. */
export const checksumProblem = (text: string) => (text === '' || /^[0-9a-f]{128}$/.test(text) ? undefined : 'A SHA-512 has 128 hexadecimal digits in lower case.');
