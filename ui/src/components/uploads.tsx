import { Alert, AlertActionCloseButton, AlertActionLink, Progress } from '@patternfly/react-core';
import { dropUpload, type Upload, useUploads } from '../api/upload';
import { bytes } from '../format';

const stages: Record<Upload['state'], (u: Upload) => string> = {
  waiting: () => 'waits until the image takes it',
  sending: (u) => `${bytes(u.sent)} of ${bytes(u.size)} sent`,
  storing: () => 'sent, and is being stored',
  failed: (u) => u.failure ?? '',
};

/** Uploads are the files that this page sends, on whatever page the user is. */
export function Uploads() {
  return useUploads().map((u) => (u.state === 'failed' ? (
    <Alert key={u.image} component="div" isInline variant="danger" className="ak-section" title={`Upload of ${u.image} has failed`}
      actionClose={<AlertActionCloseButton aria-label={`Close the failed upload of ${u.image}`} onClose={() => dropUpload(u.image)} />}>{u.failure}</Alert>
  ) : (
    <Alert key={u.image} component="div" isInline variant="info" className="ak-section" title={`Upload of ${u.image} from ${u.file}`}
      actionLinks={<AlertActionLink onClick={() => dropUpload(u.image)}>Stop it</AlertActionLink>}>
      <Progress aria-label={`Upload of ${u.image}`} size="sm" value={u.size > 0 ? Math.floor((100 * u.sent) / u.size) : 0} />
      {stages[u.state](u)}. It goes on while this page is open, whatever of it is shown.
    </Alert>
  )));
}
