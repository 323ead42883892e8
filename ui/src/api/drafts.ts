// What was typed into settings and is not saved: it is there again when their page is shown again, and the browser asks before the page is closed.

export interface Draft {
  typed: string;
  /** seen is what the setting was when typing began. */
  seen: string;
}

const drafts = new Map<string, Draft>();
const stay = (e: BeforeUnloadEvent) => e.preventDefault();

function told() {
  window[drafts.size > 0 ? 'addEventListener' : 'removeEventListener']('beforeunload', stay);
}

export const draftOf = (setting: string) => drafts.get(setting);

/** keepDraft remembers what was typed; nothing forgets it. */
export function keepDraft(setting: string, draft?: Draft) {
  if (draft) drafts.set(setting, draft);
  else drafts.delete(setting);
  told();
}

/** dropDrafts forgets all, as at the end of a session. */
export function dropDrafts() {
  drafts.clear();
  told();
}
