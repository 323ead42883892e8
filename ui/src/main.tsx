import '@patternfly/react-core/dist/styles/base.css';
import './styles.css';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createRoot } from 'react-dom/client';
import { createHashRouter, Navigate, RouterProvider } from 'react-router';
import { Refused } from './api/client';
import { Tellings } from './components/basics';
import { BackingImagePage, BackingImages } from './pages/backingimages';
import { AllBackups, Backups, BackupVolumes } from './pages/backups';
import { BackupTargets } from './pages/backuptargets';
import { Dashboard } from './pages/dashboard';
import { EngineImagePage } from './pages/engineimage';
import { ImageBackups } from './pages/imagebackups';
import { EngineImages, Events, InstanceManagers, NotFound, Orphans } from './pages/lists';
import { NodePage } from './pages/node';
import { Nodes } from './pages/nodes';
import { RecurringJobs } from './pages/recurringjobs';
import { Settings } from './pages/settings';
import { Verifications } from './pages/verification';
import { VolumePage } from './pages/volume';
import { Volumes } from './pages/volumes';
import { begin, followLinks, SessionGate, tokenOfAddress } from './session';
import { Shell } from './shell';

async function start() {
  const token = tokenOfAddress();
  let failure: string | undefined;
  if (token) await begin(token).catch((e: Error) => (failure = e.message));
  followLinks();
  const client = new QueryClient({
    defaultOptions: { queries: { retry: (n, e) => n < 2 && !(e instanceof Refused && e.status >= 400 && e.status < 500), staleTime: 2000 } },
  });
  const router = createHashRouter([{
    path: '/', element: <Shell />, children: [
      { index: true, element: <Navigate to="/dashboard" replace /> },
      { path: 'dashboard', element: <Dashboard /> },
      { path: 'volumes', element: <Volumes /> },
      { path: 'volumes/:name', element: <VolumePage /> },
      { path: 'nodes', element: <Nodes /> },
      { path: 'nodes/:name', element: <NodePage /> },
      { path: 'backups', element: <BackupVolumes /> },
      { path: 'backups/:name', element: <Backups /> },
      { path: 'backups-all', element: <AllBackups /> },
      { path: 'backups-images', element: <ImageBackups /> },
      { path: 'backups-verification', element: <Verifications /> },
      { path: 'backuptargets', element: <BackupTargets /> },
      { path: 'backingimages', element: <BackingImages /> },
      { path: 'backingimages/:name', element: <BackingImagePage /> },
      { path: 'recurringjobs', element: <RecurringJobs /> },
      { path: 'engineimages', element: <EngineImages /> },
      { path: 'engineimages/:name', element: <EngineImagePage /> },
      { path: 'instancemanagers', element: <InstanceManagers /> },
      { path: 'orphans', element: <Orphans /> },
      { path: 'events', element: <Events /> },
      { path: 'settings', element: <Settings /> },
      { path: '*', element: <NotFound /> },
    ],
  }]);
  const root = document.getElementById('root');
  if (!root) throw new Error('the page has no root');
  createRoot(root).render(
    <QueryClientProvider client={client}>
      <Tellings><SessionGate failure={failure}><RouterProvider router={router} /></SessionGate></Tellings>
    </QueryClientProvider>,
  );
}

void start();
