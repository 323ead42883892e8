import type { BackupDamage, BackupFault, BackupVerification } from './api/wire';
import { plural } from './format';

/** underWay says that a verification is ordered and not over. */
export const underWay = (v: Pick<BackupVerification, 'state'>) => v.state === 'waiting' || v.state === 'inProgress';

type Result = Pick<BackupVerification, 'state' | 'progress' | 'blocks' | 'backups' | 'faultCount' | 'error'>;

/** hurtOf counts the backups that cannot be restored whole. */
export const hurtOf = (v: Pick<BackupVerification, 'backups'>) => v.backups.filter((b) => b.faults > 0).length;

/** resultOf says in a word, and in a sentence, how far a verification is and what it has found. */
export function resultOf(v: Result): { word: string; text: string } {
  const found = v.faultCount > 0 ? `${plural(v.faultCount, 'object')} damaged or missing` : '';
  const read = `${plural(v.blocks, 'block')} read`;
  if (v.error) return { word: 'Error', text: v.error };
  switch (v.state) {
    case 'waiting':
      return { word: 'waiting', text: 'it has not begun yet' };
    case 'inProgress':
      return { word: `${v.progress} %`, text: [read, found || 'nothing found yet'].join(', ') };
    case 'done':
      if (!found) return { word: 'sound', text: `${plural(v.backups.length, 'backup')}: all sound, ${read}` };
      return { word: 'damaged', text: `${found}; backups hurt: ${hurtOf(v)} of ${v.backups.length}` };
    default:
      return { word: '', text: 'never verified' };
  }
}

/** backupResult is what is known of one backup of a verified volume; empty: nothing. */
export function backupResult(v: Pick<BackupVerification, 'state' | 'backups' | 'error'> | undefined, backup: string): '' | 'sound' | 'damaged' {
  const of = v?.backups.find((b) => b.name === backup);
  if (!v || !of) return '';
  if (of.faults > 0) return 'damaged';
  return v.state === 'done' && !v.error ? 'sound' : '';
}

/** hurtBy names the backups that an object of the store is missing for, of which the server names the first ones. */
export function hurtBy(f: Pick<BackupFault, 'backups' | 'backupCount'>): string {
  const more = f.backupCount - f.backups.length;
  return f.backups.join(', ') + (more > 0 ? `, and ${more} more` : '') || 'none';
}

/** decisionOf is what a person can decide about the damaged backup of a volume. While a restore goes well there is nothing. */
export function decisionOf(d: BackupDamage | undefined): 'accept' | 'acknowledge' | undefined {
  if (!d || d.refused) return undefined;
  if (d.restoring) return d.problem && !d.accepted ? 'accept' : undefined;
  return d.damage ? 'acknowledge' : undefined;
}
