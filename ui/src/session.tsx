import { Alert, Button, Form, FormGroup, Modal, ModalBody, ModalHeader, TextInput, Title } from '@patternfly/react-core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { createContext, type ReactNode, useContext, useEffect, useMemo, useState } from 'react';
import { call, onSignedOut } from './api/client';
import { dropDrafts } from './api/drafts';
import { forget, reopen, show } from './api/stream';
import { dropUploads } from './api/upload';

export interface Session {
  user: string;
  expires: string;
  anonymousAccess: 'none' | 'read-only' | 'all';
  operations: string[];
  streamProof: string;
}

interface Access {
  session: Session;
  /** may tells whether the server lets the user do it: an action of a kind, or a method on it. */
  may: (what: string, kind: string) => boolean;
  logIn: () => void;
  logOut: () => Promise<void>;
}

const Context = createContext<Access | undefined>(undefined);

export function useAccess(): Access {
  const access = useContext(Context);
  if (!access) throw new Error('outside of a session');
  return access;
}

const known = (s: Session) => s.user !== '' || s.anonymousAccess !== 'none';

/** tokenOfAddress takes a token out of the fragment of the address, which browsers send to nobody, and out of the history. */
export function tokenOfAddress(): string | undefined {
  const found = /^#\/?token=(.+)$/.exec(location.hash);
  if (!found?.[1]) return undefined;
  history.replaceState(null, '', location.pathname + location.search);
  try {
    return decodeURIComponent(found[1]);
  } catch {
    return found[1]; // it is no token either, which the server says
  }
}

/** followLinks logs in by a link that is opened where the page already is: then only the fragment changes. */
export function followLinks() {
  window.addEventListener('hashchange', () => {
    const token = tokenOfAddress();
    if (token) void begin(token).catch(() => undefined).finally(() => location.reload()); // a wrong one changes nothing
  });
}

async function ask(...what: Parameters<typeof call>) {
  const session = await call<Session>(...what);
  show(session.streamProof);
  return session;
}

export const begin = (token: string) => ask('POST', 'session', { token });

function LogIn({ done, failure }: { done: () => void; failure?: string }) {
  const [token, setToken] = useState('');
  const [refusal, setRefusal] = useState(failure);
  const [running, setRunning] = useState(false);
  const submit = async () => {
    setRunning(true);
    setRefusal(undefined);
    try {
      await begin(token.trim());
      done();
    } catch (e) {
      setRefusal((e as Error).message);
    } finally {
      setRunning(false);
    }
  };
  return (
    <Form onSubmit={(e) => { e.preventDefault(); void submit(); }}>
      {refusal && <Alert component="div" isInline variant="danger" title="Not logged in">{refusal}</Alert>}
      <FormGroup label="Kubernetes token" fieldId="token">
        <TextInput id="token" type="password" autoComplete="off" autoFocus value={token} onChange={(_, v) => setToken(v)} />
      </FormGroup>
      <p className="ak-quiet">
        Make one with: <span className="ak-mono">kubectl -n longhorn-system create token ACCOUNT --audience longhorn-backend</span>
      </p>
      <div><Button type="submit" isLoading={running} isDisabled={!token.trim() || running}>Log in</Button></div>
    </Form>
  );
}

/** SessionGate shows its children to users who are known. When a session ends by itself they stay as they are, with what was
 * typed, below a dialog that asks for a token. */
export function SessionGate({ failure, children }: { failure?: string; children: ReactNode }) {
  const client = useQueryClient();
  const [expired, setExpired] = useState(false);
  const [asked, setAsked] = useState(false);
  const [inside, setInside] = useState(false);
  const { data: session, error } = useQuery({ queryKey: ['session'], queryFn: () => ask('GET', 'session'),
    refetchInterval: 60_000 });
  useEffect(() => onSignedOut(() => setExpired(true)), []);
  if (session && known(session) && !inside) setInside(true);
  const access = useMemo<Access | undefined>(() => session && {
    session,
    may: (what, kind) => session.operations.includes(`${what} /v1/${kind}${what === 'POST' ? '' : '/{name}'}`),
    logIn: () => setAsked(true),
    logOut: async () => {
      await call('DELETE', 'session');
      dropUploads();
      dropDrafts();
      forget();
      client.clear();
      setInside(false);
      setExpired(false);
      await client.invalidateQueries({ queryKey: ['session'] });
    },
  }, [session, client]);
  const done = () => {
    setExpired(false);
    setAsked(false);
    reopen();
    void client.invalidateQueries();
  };
  if (!access) {
    return error ? <div className="ak-login"><Alert component="div" isInline variant="danger" title="The server does not answer">{error.message}</Alert></div> : null;
  }
  if (!inside) {
    return (
      <main className="ak-login">
        <Title headingLevel="h1">Ankole</Title>
        <p>Log in to see volumes, nodes and what goes on.</p>
        <LogIn done={done} failure={failure} />
      </main>
    );
  }
  return (
    <Context value={access}>
      {children}
      {(expired || asked) && (
        <Modal isOpen variant="small" aria-label="Log in" onClose={() => { setExpired(false); setAsked(false); }}>
          <ModalHeader title={expired ? 'Your session has ended' : 'Log in'}
            description={expired ? 'What you were typing is kept: log in and send it again.' : undefined} />
          <ModalBody><LogIn done={done} /></ModalBody>
        </Modal>
      )}
    </Context>
  );
}
