import { Button, FormGroup, Progress, TextInput } from '@patternfly/react-core';
import { useQueries, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useSearchParams } from 'react-router';
import { call, path } from '../api/client';
import { useStream } from '../api/stream';
import type { BackupFault, BackupVerification, BackupVolume } from '../api/wire';
import { Bytes, Dialog, Facts, Quiet, Section, State, Time } from '../components/basics';
import { Menu } from '../components/choice';
import { type Column, DataTable } from '../components/table';
import { plural } from '../format';
import { useAccess } from '../session';
import { hurtBy, hurtOf, resultOf, underWay } from '../verification';
import { Head, Pick, usePicked } from './lists';

const tabs = [['volumes', 'By volume', '/backups'], ['all', 'All backups', '/backups-all'], ['images', 'Backing images', '/backups-images'],
  ['verification', 'Verification', '/backups-verification']] as const;

/** BackupTabs lead from one view of the backups to the others. */
export const BackupTabs = ({ at }: { at?: (typeof tabs)[number][0] }) => (
  <>{tabs.filter(([name]) => name !== at).map(([name, title, to]) => <Link key={name} to={to}>{title}</Link>)}</>
);

const kind = 'backupverifications';
const keyOf = (id: string) => ['verification', id];

/** followed reads a verification, again and again while it is under way. */
const followed = (of: BackupVolume | undefined) => ({
  queryKey: keyOf(of?.id ?? ''), queryFn: () => call<BackupVerification>('GET', path(kind, { id: of?.id ?? '' })), enabled: !!of, staleTime: 60_000,
  refetchInterval: (q: { state: { data?: BackupVerification } }) => (q.state.data && underWay(q.state.data) ? 2_000 : (false as const)),
});

export const useVerification = (of: BackupVolume | undefined) => useQuery(followed(of));

export const useMayVerify = () => useAccess().may('POST', `${kind}/{name}`);

/** Percent is how far a verification is. */
const Percent = ({ of: v }: { of: BackupVerification }) => <Progress size="sm" value={v.progress} aria-label={`Verification of ${v.volume} in ${v.target}`} />;

/** VerifyDialog orders verifications. One that is under way goes on, with the bandwidth that is given. */
export function VerifyDialog({ volumes, onClose, after }: { volumes: readonly BackupVolume[]; onClose: () => void; after?: () => void }) {
  const client = useQueryClient();
  const [bandwidth, setBandwidth] = useState('0');
  const run = async () => {
    for (const v of volumes) {
      const ordered = await call<BackupVerification>('POST', path(kind, v), { bandwidthLimit: Number(bandwidth) }).catch((e: Error) => {
        throw volumes.length > 1 ? new Error(`${v.volumeName} in ${v.backupTargetName}: ${e.message}`) : e;
      });
      client.setQueryData(keyOf(v.id), ordered);
    }
    after?.();
  };
  const whose = volumes.length === 1 ? volumes[0]?.volumeName : plural(volumes.length, 'volume');
  return (
    <Dialog title={`Verify the backups of ${whose}?`} label="Verify" done="The verification is ordered" ready={/^\d+$/.test(bandwidth)} onClose={onClose} run={run}>
      <p>Every block and record that the target has of {volumes.length === 1 ? 'the volume' : 'these volumes'} is read and compared with its checksum. Nothing is changed in the volumes;
        what is found is noted in the store, and the next backup writes it again where the volume still holds it.</p>
      <FormGroup label="MiB per second at most (0: as the setting says)" fieldId="bandwidth">
        <TextInput id="bandwidth" type="number" min={0} value={bandwidth} onChange={(_, v) => setBandwidth(v)} />
      </FormGroup>
    </Dialog>
  );
}

const faultColumns: Column<BackupFault>[] = [
  { title: 'Kind', width: 8, cell: (f) => <State of={f.kind} />, by: (f) => f.kind },
  { title: 'Object', cell: (f) => <span className="ak-mono" title={f.object}>{f.object.split('/').at(-1)}</span>, by: (f) => f.object },
  { title: 'Backups that cannot be restored whole', wrap: true, cell: hurtBy },
  { title: 'Message', wrap: true, cell: (f) => f.message || '–' },
];

/** Verification is the latest one of a volume's backups, with what it has found. */
export function Verification({ of }: { of: BackupVolume }) {
  const { data: v, error } = useVerification(of);
  const may = useMayVerify();
  const [ordering, setOrdering] = useState(false);
  if (error || !v) return error ? <Section title="Verification"><Quiet>{error.message}</Quiet></Section> : null;
  const result = resultOf(v);
  return (
    <Section title="Verification" actions={<><span className="ak-grow" />{may && <Button variant="secondary" size="sm" onClick={() => setOrdering(true)}>Verify…</Button>}</>}>
      {v.state === 'inProgress' && <Percent of={v} />}
      <Facts of={[['Result', <><State of={result.word} /> {result.text}</>], ['Asked for', v.requestedAt && <Time at={v.requestedAt} />], ['Ended', v.endedAt && <Time at={v.endedAt} />],
        ['Read from the target', v.state !== 'none' && <Bytes of={v.readBytes} />]]} />
      {v.faults.length > 0 && <DataTable label="Damaged or missing" columns={faultColumns} rows={v.faults} keyOf={(f) => f.object} empty="" sortKey="faults" />}
      {v.faultCount > v.faults.length && v.faults.length > 0 && <Quiet>{v.faults.length} of {v.faultCount} are listed.</Quiet>}
      {ordering && <VerifyDialog volumes={[of]} onClose={() => setOrdering(false)} />}
    </Section>
  );
}

interface Row {
  of: BackupVolume;
  v?: BackupVerification;
  failure?: string;
}

const columns: Column<Row>[] = [
  { title: 'Volume', cell: (r) => <Link to={`/backups/${encodeURIComponent(r.of.id)}`}>{r.of.volumeName}</Link>, by: (r) => r.of.volumeName },
  { title: 'Target', width: 9, cell: (r) => r.of.backupTargetName, by: (r) => r.of.backupTargetName },
  { title: 'Result', width: 11, cell: (r) => (!r.v ? '–' : r.v.state === 'inProgress' && !r.v.error ? <Percent of={r.v} /> : <State of={resultOf(r.v).word} />),
    by: (r) => (r.v ? resultOf(r.v).word : '') },
  { title: 'Backups', width: 8, cell: (r) => r.v?.backups.length ?? '–', by: (r) => r.v?.backups.length ?? -1 },
  { title: 'Hurt', width: 6, cell: (r) => (r.v ? hurtOf(r.v) : '–'), by: (r) => (r.v ? hurtOf(r.v) : -1) },
  { title: 'Ended', width: 12, cell: (r) => <Time at={r.v?.endedAt} />, by: (r) => r.v?.endedAt ?? '' },
  { title: 'What was found', wrap: true, cell: (r) => r.failure ?? (r.v ? resultOf(r.v).text : '') },
];

/** Verifications are those of all volumes that have backups, or of a target. */
export function Verifications() {
  const { list, failure } = useStream<BackupVolume>('backupvolumes');
  const [params] = useSearchParams();
  const may = useMayVerify();
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [ordering, setOrdering] = useState(false);
  const target = params.get('target');
  const shown = usePicked(list, (b) => `${b.volumeName} ${b.backupTargetName}`)?.filter((b) => !target || b.backupTargetName === target);
  const answers = useQueries({ queries: (shown ?? []).map(followed) });
  const rows = shown?.map((of, i): Row => ({ of, v: answers[i]?.data, failure: answers[i]?.error?.message }));
  const picked = (list ?? []).filter((b) => selected.has(b.id));
  return (
    <>
      <Head title="Verification of backups" of={rows}>
        <Pick name="target" label="Target" options={[...new Set((list ?? []).map((b) => b.backupTargetName))].sort()} />
        <BackupTabs at="verification" />
        <Menu label="Actions" entries={may && picked.length > 0 ? [{ name: 'Verify…', run: () => setOrdering(true) }] : []} />
      </Head>
      <DataTable label="Verifications" columns={columns} rows={rows} keyOf={(r) => r.of.id} failure={failure} empty="There is no backup to verify."
        selected={may ? { keys: selected, onChange: setSelected } : undefined} />
      {ordering && <VerifyDialog volumes={picked} onClose={() => setOrdering(false)} />}
    </>
  );
}
