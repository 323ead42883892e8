import { Alert, Button, FormSelect, FormSelectOption, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { call, path } from '../api/client';
import { draftOf, keepDraft } from '../api/drafts';
import { useStream } from '../api/stream';
import type { Setting } from '../api/wire';
import { Quiet, Section, useTell } from '../components/basics';
import { useAccess } from '../session';
import { Head, usePicked } from './lists';

const danger = 'danger Zone';

/** Row is one setting. What is typed stays until it is saved or given up, whatever comes meanwhile. */
function Row({ of: s }: { of: Setting }) {
  const { may } = useAccess();
  const tell = useTell();
  const [typed, setTyped] = useState(draftOf(s.name)?.typed);
  const [seen, setSeen] = useState(draftOf(s.name)?.seen ?? s.value);
  const [refusal, setRefusal] = useState<string>();
  const [running, setRunning] = useState(false);
  const d = s.definition;
  const fixed = d.readOnly || !may('PUT', 'settings');
  const value = typed ?? s.value;
  const change = (v: string) => {
    const before = typed === undefined ? s.value : seen;
    setSeen(before);
    setTyped(v);
    keepDraft(s.name, v === s.value ? undefined : { typed: v, seen: before });
  };
  const save = async () => {
    setRunning(true);
    setRefusal(undefined);
    try {
      await call('PUT', path('settings', s), { value });
      setTyped(undefined);
      keepDraft(s.name);
      tell('success', `${d.displayName} is saved`);
    } catch (e) {
      setRefusal((e as Error).message);
    } finally {
      setRunning(false);
    }
  };
  const choices = d.type === 'bool' && !d.dataEngineSpecific ? ['true', 'false'] : (d.options ?? []).map(String);
  return (
    <div className="ak-setting">
      <div>
        <label htmlFor={s.name}><strong>{d.displayName}</strong></label> <Quiet><span className="ak-mono">{s.name}</span></Quiet>
        <div className="ak-quiet" style={{ whiteSpace: 'pre-line' }}>{d.description}</div>
        {!s.applied && <Quiet>It is saved and waits to be applied.</Quiet>}
      </div>
      <div>
        {choices.length > 0 && (value === '' || choices.includes(value)) ? (
          <FormSelect id={s.name} value={value} isDisabled={fixed} onChange={(_, v) => change(v)}>
            {(choices.includes(value) ? choices : ['', ...choices]).map((c) => <FormSelectOption key={c} value={c} label={c} />)}
          </FormSelect>
        ) : (
          <TextInput id={s.name} value={value} isDisabled={fixed} onChange={(_, v) => change(v)} />
        )}
        <Quiet>{value === d.default ? 'the default' : `default: ${d.default || 'empty'}`}</Quiet>
        {typed !== undefined && s.value !== seen && <Alert component="div" isInline isPlain variant="warning" title={`Somebody has set it to ${s.value || 'nothing'} meanwhile`} />}
        {refusal && <Alert component="div" isInline variant="danger" title="Refused">{refusal}</Alert>}
      </div>
      <div>
        {typed !== undefined && typed !== s.value && (
          <>
            <Button size="sm" isLoading={running} isDisabled={running} onClick={() => void save()} aria-label={`Save ${d.displayName}`}>Save</Button>{' '}
            <Button size="sm" variant="link" onClick={() => { setTyped(undefined); setRefusal(undefined); keepDraft(s.name); }}>Undo</Button>
          </>
        )}
      </div>
    </div>
  );
}

export function Settings() {
  const { list: all, failure } = useStream<Setting>('settings');
  const rows = usePicked(all?.filter((s) => s.definition.type !== 'deprecated'), (s) => `${s.name} ${s.definition.displayName} ${s.definition.description} ${s.definition.category}`);
  const categories = [...new Set(rows?.map((s) => s.definition.category))].sort((a, b) => Number(a === danger) - Number(b === danger) || a.localeCompare(b));
  const waiting = rows?.filter((s) => !s.applied) ?? [];
  return (
    <>
      <Head title="Settings" of={rows} />
      {waiting.length > 0 && (
        <Alert component="div" isInline variant="info" title="Saved, and not applied yet" className="ak-section">{waiting.map((s) => s.definition.displayName).join(', ')}</Alert>
      )}
      {!rows && <p className="ak-quiet" role="status">{failure ?? 'Loading…'}</p>}
      {categories.map((c) => (
        <Section key={c} title={c.charAt(0).toUpperCase() + c.slice(1)}>
          {c === danger && <Alert component="div" isInline variant="danger" title="These can interrupt volumes in use">Most are applied only when no volume is attached; until then they wait.</Alert>}
          {rows?.filter((s) => s.definition.category === c).map((s) => <Row key={s.id} of={s} />)}
        </Section>
      ))}
    </>
  );
}
