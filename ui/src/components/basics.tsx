import { Alert, AlertActionCloseButton, AlertGroup, Button, Form, Modal, ModalBody, ModalFooter, ModalHeader } from '@patternfly/react-core';
import '@patternfly/react-styles/css/components/Label/label.css';
import { createContext, type ReactNode, useContext, useMemo, useState } from 'react';
import { bytes, local, parseTime } from '../format';

export const Bytes = ({ of }: { of: string | number | undefined }) => <span className="ak-num" title={`${of ?? 0} bytes`}>{bytes(of)}</span>;

/** Time is shown in the zone of the browser, in UTC on hover. */
export function Time({ at }: { at: string | undefined | null }) {
  const date = parseTime(at);
  return date ? <time className="ak-num" dateTime={date.toISOString()} title={date.toUTCString()}>{local(date)}</time> : <>–</>;
}

type Colour = 'green' | 'orange' | 'red' | 'blue' | 'grey';

const colours: Record<string, Colour> = {
  healthy: 'green', degraded: 'orange', faulted: 'red', attached: 'blue', detached: 'grey', running: 'green', deployed: 'green',
  error: 'red', ERR: 'red', RW: 'green', WO: 'blue', Warning: 'orange', Normal: 'grey', starting: 'blue', deploying: 'blue',
  Schedulable: 'green', Unschedulable: 'orange', Down: 'red', Disabled: 'grey', Ready: 'green', 'Not ready': 'red',
  available: 'green', unavailable: 'red', Completed: 'green', Error: 'red', Pending: 'grey', Deleting: 'orange', Unknown: 'grey',
  'In progress': 'blue', Waiting: 'grey', Degraded: 'orange', Failed: 'red', ready: 'green', failed: 'red', 'failed-and-cleanup': 'red', pending: 'grey', unknown: 'orange',
  PASSED: 'green', WARNING: 'orange', FAILED: 'red', UNKNOWN: 'grey', sound: 'green', damaged: 'red', missing: 'red', record: 'red', waiting: 'grey',
};

/** Label looks as PatternFly's, which measures itself after each drawing and listens to the whole document: tables have hundreds. */
export const Label = ({ colour, title, children }: { colour: Colour; title?: string; children: string }) => (
  <span className={`pf-v6-c-label pf-m-compact${colour === 'grey' ? '' : ` pf-m-${colour}`}`} title={title}>
    <span className="pf-v6-c-label__content"><span className="pf-v6-c-label__text">{children}</span></span>
  </span>
);

export const State = ({ of, title }: { of: string; title?: string }) =>
  of ? <Label colour={colours[of] ?? 'blue'} title={title}>{of}</Label> : <>–</>;

export const Quiet = ({ children }: { children: ReactNode }) => <span className="ak-quiet">{children}</span>;

export function Facts({ of }: { of: [string, ReactNode][] }) {
  return (
    <dl className="ak-grid">
      {of.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value || value === 0 ? value : '–'}</dd></div>)}
    </dl>
  );
}

export const Section = ({ title, children, actions }: { title: string; children: ReactNode; actions?: ReactNode }) => (
  <section className="ak-section" aria-label={title}>
    {actions ? <div className="ak-bar"><h2>{title}</h2>{actions}</div> : <h2>{title}</h2>}
    {children}
  </section>
);

/** Why is what an object waits for, as the server says it, and the command that says the same. */
export function Why({ of, danger, command }: { of: readonly string[] | null | undefined; danger?: boolean; command: string }) {
  if (!of?.length) return null;
  return (
    <Alert component="div" isInline variant={danger ? 'danger' : 'warning'} title="Why?" className="ak-section">
      <ul className="ak-list">{of.map((text) => <li key={text}>{text}</li>)}</ul>
      <Quiet>The same on a terminal: <span className="ak-mono">{command}</span></Quiet>
    </Alert>
  );
}

interface Told {
  id: number;
  variant: 'success' | 'danger';
  text: string;
  detail?: string;
}

const Telling = createContext<(variant: Told['variant'], text: string, detail?: string) => void>(() => undefined);
export const useTell = () => useContext(Telling);
let lastID = 0;

/** Tellings shows what has become of what the user did. Refusals stay until they are closed. */
export function Tellings({ children }: { children: ReactNode }) {
  const [told, setTold] = useState<Told[]>([]);
  const drop = (id: number) => setTold((all) => all.filter((t) => t.id !== id));
  const tell = useMemo(() => (variant: Told['variant'], text: string, detail?: string) => {
    const id = ++lastID;
    setTold((all) => [...all.slice(-4), { id, variant, text, detail }]);
    if (variant === 'success') setTimeout(() => drop(id), 6000);
  }, []);
  return (
    <Telling value={tell}>
      {children}
      <AlertGroup isToast isLiveRegion>
        {told.map((t) => (
          <Alert component="div" key={t.id} variant={t.variant} title={t.text} actionClose={<AlertActionCloseButton onClose={() => drop(t.id)} />}>
            {t.detail}
          </Alert>
        ))}
      </AlertGroup>
    </Telling>
  );
}

interface DialogProps {
  title: string;
  children?: ReactNode;
  label: string;
  danger?: boolean;
  ready?: boolean;
  wide?: boolean;
  /** done is told to the user when it has succeeded. */
  done?: string;
  run: () => Promise<unknown>;
  onClose: () => void;
}

/** Dialog asks before something is done, shows the server's refusal and keeps what was typed. */
export function Dialog({ title, children, label, danger, ready = true, wide, done, run, onClose }: DialogProps) {
  const [refusal, setRefusal] = useState<string>();
  const [running, setRunning] = useState(false);
  const tell = useTell();
  const submit = async () => {
    setRunning(true);
    setRefusal(undefined);
    try {
      await run();
      if (done) tell('success', done);
      onClose();
    } catch (e) {
      setRefusal((e as Error).message);
    } finally {
      setRunning(false);
    }
  };
  return (
    <Modal isOpen variant={wide ? 'medium' : 'small'} aria-label={title} onClose={onClose}>
      <ModalHeader title={title} titleIconVariant={danger ? 'warning' : undefined} />
      <ModalBody>
        <Form id="dialog" onSubmit={(e) => { e.preventDefault(); if (ready && !running) void submit(); }}>
          {refusal && <Alert component="div" isInline variant="danger" title="Refused">{refusal}</Alert>}
          {children}
        </Form>
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="dialog" variant={danger ? 'danger' : 'primary'} isDisabled={!ready || running} isLoading={running}>{label}</Button>
        <Button variant="link" onClick={onClose}>{running ? 'Leave it running' : 'Cancel'}</Button>
      </ModalFooter>
    </Modal>
  );
}
