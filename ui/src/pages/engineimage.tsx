import { Button, Title } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useParams } from 'react-router';
import { useStream } from '../api/stream';
import { limitName, useUpgradeLimit } from '../api/upgradelimit';
import type { EngineImage, Event, Volume } from '../api/wire';
import { Facts, Quiet, Section, State, Time, Why } from '../components/basics';
import { type Column, DataTable } from '../components/table';
import { eventColumns, newest } from './lists';
import { useCan, VolumeDialog } from './volumeactions';

/** stage is how far a volume is on its way to an image. */
const stage = (v: Volume, image: string) => {
  if (v.image !== image) return v.currentImage === image ? 'leaves it' : 'uses another';
  if (v.currentImage && v.currentImage !== image) return 'is being upgraded';
  return 'uses it';
};

function Volumes({ of: i }: { of: EngineImage }) {
  const { list: volumes, failure } = useStream<Volume>('volumes');
  const can = useCan();
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [upgrading, setUpgrading] = useState<Volume[]>();
  const columns: Column<Volume>[] = [
    { title: 'Volume', cell: (v) => <Link to={`/volumes/${encodeURIComponent(v.name)}`}>{v.name}</Link>, by: (v) => v.name },
    { title: 'State', width: 9, cell: (v) => v.state, by: (v) => v.state },
    { title: 'Node', width: 10, cell: (v) => v.controllers?.find((c) => c.hostId)?.hostId ?? '–' },
    { title: 'Image', width: 11, cell: (v) => stage(v, i.image), by: (v) => stage(v, i.image) },
    { title: 'Runs', cell: (v) => <span title={v.currentImage}>{v.currentImage || '–'}</span>, by: (v) => v.currentImage },
    { title: 'Waits for', wrap: true, cell: (v) => (v.image !== v.currentImage && v.conditions?.EngineUpgrade?.message) || '–' },
  ];
  const picked = (volumes ?? []).filter((v) => selected.has(v.id) && v.image !== i.image && can(v, 'engineUpgrade'));
  return (
    <Section title="Volumes" actions={i.state === 'deployed' && (
      <><span className="ak-grow" /><Button size="sm" isDisabled={picked.length === 0} onClick={() => setUpgrading(picked)}>Upgrade to this image…</Button></>
    )}>
      <DataTable label="Volumes" columns={columns} rows={volumes} keyOf={(v) => v.id} failure={failure} selected={{ keys: selected, onChange: setSelected }} sortKey="volumes" empty="There is no volume." />
      {upgrading && <VolumeDialog what="upgrade" image={i.image} volumes={upgrading} onClose={() => setUpgrading(undefined)} after={() => setSelected(new Set())} />}
    </Section>
  );
}

export function EngineImagePage() {
  const { name = '' } = useParams();
  const { list: all, failure } = useStream<EngineImage>('engineimages');
  const events = useStream<Event>('events').list;
  const limit = useUpgradeLimit();
  const i = all?.find((o) => o.name === name);
  if (!i) {
    return (
      <>
        <Title headingLevel="h1" size="xl">{name}</Title>
        <p role="status">{all ? <>There is no engine image of this name. <Link to="/engineimages">To the engine images</Link></> : (failure ?? 'Loading…')}</p>
      </>
    );
  }
  const upgrades = newest(events?.filter((e) => /upgrad/i.test(e.event.reason)));
  return (
    <>
      <div className="ak-bar">
        <Title headingLevel="h1" size="xl">{i.image}</Title>
        <State of={i.state} />
        {i.default && <State of="default" />}
      </div>
      <Why of={i.waitsFor} command={`ankole engine-image describe ${i.name}`} />
      <Section title="Engine image">
        <Facts of={[['Name', i.name], ['Used by', i.refCount], ['Unused since', <Time at={i.noRefSince} />], ['Version', i.version], ['Commit', i.gitCommit], ['Built', <Time at={i.buildDate} />],
          ['Command-line API', `${i.cliAPIMinVersion} to ${i.cliAPIVersion}`], ['Controller API', `${i.controllerAPIMinVersion} to ${i.controllerAPIVersion}`],
          ['Data format', `${i.dataFormatMinVersion} to ${i.dataFormatVersion}`],
          ['Upgrades by themselves', limit === undefined ? '–' : limit > 0 ? `${limit} of a node at a time, to the default image` : 'none: every upgrade is ordered']]} />
        <Quiet>How many engines of a node are upgraded by themselves at a time is setting <Link to={`/settings?q=${limitName}`}>{limitName}</Link>.</Quiet>
      </Section>
      <Volumes of={i} />
      <Section title="Nodes">
        <DataTable label="Nodes" rows={Object.entries(i.nodeDeploymentMap ?? {}).sort()} keyOf={([n]) => n} empty="There is no node." sortKey="nodes" columns={[
          { title: 'Node', cell: ([n]) => <Link to={`/nodes/${encodeURIComponent(n)}`}>{n}</Link>, by: ([n]) => n },
          { title: 'Programs', width: 12, cell: ([, on]) => <State of={on ? 'deployed' : 'deploying'} />, by: ([, on]) => Number(on) },
        ]} />
      </Section>
      <Section title="Upgrades of the last hour">
        <DataTable label="Upgrades" columns={eventColumns} rows={upgrades} keyOf={(e) => e.id} empty="There was no upgrade in the last hour." sortKey="upgrades" />
      </Section>
    </>
  );
}
