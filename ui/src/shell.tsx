import { Alert, Button, Masthead, MastheadBrand, MastheadContent, MastheadMain, MastheadToggle, Nav, NavItem, NavList, Page, PageSection, PageSidebar, PageSidebarBody,
  PageToggleButton, SkipToContent } from '@patternfly/react-core';
import { useEffect, useState } from 'react';
import { NavLink, Outlet, useLocation } from 'react-router';
import { useQuery } from '@tanstack/react-query';
import { call } from './api/client';
import { useCut } from './api/stream';
import type { Setting } from './api/wire';
import { local } from './format';
import { useAccess } from './session';
import { Quiet, useTell } from './components/basics';
import { Uploads } from './components/uploads';

const menu: [string, string][] = [['dashboard', 'Dashboard'], ['volumes', 'Volumes'], ['nodes', 'Nodes'], ['recurringjobs', 'Recurring jobs'],
  ['backups', 'Backups'], ['backuptargets', 'Backup targets'], ['backingimages', 'Backing images'],
  ['engineimages', 'Engine images'], ['instancemanagers', 'Instance managers'], ['orphans', 'Orphans'], ['events', 'Events'], ['settings', 'Settings']];

const dark = 'pf-v6-theme-dark';

function Theme() {
  const [on, setOn] = useState(() => {
    const kept = localStorage.getItem('theme');
    return kept ? kept === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  });
  useEffect(() => void document.documentElement.classList.toggle(dark, on), [on]);
  return (
    <Button variant="plain" aria-pressed={on} onClick={() => { localStorage.setItem('theme', on ? 'light' : 'dark'); setOn(!on); }}>
      {on ? 'Light' : 'Dark'}
    </Button>
  );
}

/** Stale says that the page is not what is, once that has lasted longer than a change of the leading manager's stream. */
function Stale() {
  const since = useCut();
  const [late, setLate] = useState<number>();
  useEffect(() => {
    if (since === undefined) return;
    const timer = setTimeout(() => setLate(since), 1500);
    return () => clearTimeout(timer);
  }, [since]);
  if (since === undefined || late !== since) return null;
  return (
    <Alert component="div" isInline variant="warning" className="ak-section" title={`Not live since ${local(new Date(since))}`}>
      What you see may be old. The page connects again by itself and then shows what it has missed.
    </Alert>
  );
}

/** Version is that of the system, as its managers say. */
function Version() {
  const { data } = useQuery({ queryKey: ['setting', 'current-longhorn-version'], queryFn: () => call<Setting>('GET', 'settings/current-longhorn-version'), staleTime: 60_000 });
  return data?.value ? <Quiet>{data.value}</Quiet> : null;
}

export function Shell() {
  const { session, logIn, logOut } = useAccess();
  const { pathname } = useLocation();
  const tell = useTell();
  // Where the screen is narrow the menu lies over the page, and goes when one of its pages is chosen.
  const [narrow, setNarrow] = useState(false);
  const [menuOpen, setMenuOpen] = useState(true);
  const resized = (_: unknown, { mobileView }: { mobileView: boolean }) => {
    if (mobileView === narrow) return;
    setNarrow(mobileView);
    setMenuOpen(!mobileView);
  };
  return (
    <Page isContentFilled onPageResize={resized} mainContainerId="main" skipToContent={<SkipToContent href="#main" onClick={(e) => { e.preventDefault(); document.getElementById('main')?.focus(); }}>Skip to content</SkipToContent>}
      masthead={
        <Masthead>
          <MastheadMain>
            <MastheadToggle><PageToggleButton isHamburgerButton aria-label="Pages" isSidebarOpen={menuOpen} onSidebarToggle={() => setMenuOpen(!menuOpen)} /></MastheadToggle>
            <MastheadBrand><strong>Ankole</strong>&nbsp;<Version /></MastheadBrand>
          </MastheadMain>
          <MastheadContent>
            <div className="ak-bar" style={{ width: '100%', margin: 0 }}>
              <span className="ak-grow" />
              <Theme />
              <span>{session.user || 'not logged in'}{session.operations.length === 0 && ' · read-only'}</span>
              {session.user
                ? <Button variant="link" onClick={() => logOut().catch((e: Error) => tell('danger', 'Not logged out', e.message))}>Log out</Button>
                : <Button variant="link" onClick={logIn}>Log in</Button>}
            </div>
          </MastheadContent>
        </Masthead>
      }
      sidebar={
        <PageSidebar isSidebarOpen={menuOpen}>
          <PageSidebarBody>
            <Nav aria-label="Pages" onSelect={() => { if (narrow) setMenuOpen(false); }}>
              <NavList>
                {menu.map(([path, name]) => (
                  <NavItem key={path} isActive={pathname.startsWith(`/${path}`)}><NavLink to={`/${path}`}>{name}</NavLink></NavItem>
                ))}
              </NavList>
            </Nav>
          </PageSidebarBody>
        </PageSidebar>
      }>
      <PageSection isFilled>
        <Stale />
        <Uploads />
        <Outlet />
      </PageSection>
    </Page>
  );
}
