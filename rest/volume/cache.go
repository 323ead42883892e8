package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// cache keeps the encoded volumes, so that a change of one volume encodes that one, once for
// all lists and streams. Its invariants:
//
//   - It does not decide what is current. A caller brings the objects that it has read and gets the
//     text of exactly those: an entry counts only while the versions of all objects that it was
//     made of (the Volume, its VolumeAttachment, Engines and Replicas) are those of the caller's.
//     Callers that have read at different times cost each other an encoding, and nothing else.
//   - Nothing else enters the view of a volume: no setting, no backup, no time of day. Whoever adds
//     something to volumeView adds its version to versions. TestCacheAgainstFreshViews compares.
//   - Texts are the same for all callers. The links, which depend on the request, are cut out of
//     them; the rights of callers decide whether they see the list, not what it shows.
//   - It holds no more than the volumes of the last list that was read, and those that streams
//     have seen since.
//   - A text is never changed, and another one only if it differs, so that streams tell by the
//     pointer that a volume is the same.
type cache struct {
	mu      sync.Mutex
	entries map[string]*volumeEntry
}

// volumeEntry is the text of a volume with what it was made of.
type volumeEntry struct {
	of   []objectVersion
	text *serve.Text
}

// objectVersion is the state of an object. An API server gives no version to two states of one
// kind; with the name, an object of a test's server that is replaced differs too.
type objectVersion struct {
	name, resourceVersion string
	uid                   types.UID
}

// volumeObjects are a volume and its parts as they lie in the reader's cache: they must not be
// changed.
type volumeObjects struct {
	volume     *lh.Volume
	engines    []*lh.Engine
	replicas   []*lh.Replica
	attachment *lh.VolumeAttachment
}

// sort gives the parts their order, which is that of the view.
func (o *volumeObjects) sort() {
	slices.SortFunc(o.engines, func(a, b *lh.Engine) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(o.replicas, func(a, b *lh.Replica) int { return strings.Compare(a.Name, b.Name) })
}

// versions adds those of all objects, so that no two sets of objects have the same.
func (o *volumeObjects) versions(to []objectVersion) []objectVersion {
	add := func(m client.Object) { to = append(to, objectVersion{m.GetName(), m.GetResourceVersion(), m.GetUID()}) }
	add(o.volume)
	if o.attachment != nil {
		add(o.attachment)
	}
	to = append(to, objectVersion{})
	for _, e := range o.engines {
		add(e)
	}
	to = append(to, objectVersion{})
	for _, r := range o.replicas {
		add(r)
	}
	return to
}

// parts copies what the view reads.
func (o *volumeObjects) parts() volumeParts {
	p := volumeParts{volume: o.volume, attachment: o.attachment}
	for _, e := range o.engines {
		p.engines = append(p.engines, *e)
	}
	for _, r := range o.replicas {
		p.replicas = append(p.replicas, *r)
	}
	return p
}

// get returns the text of a volume, encoding it if it is not the one kept. scratch saves garbage
// and may be nil.
func (c *cache) get(q *serve.Request, o *volumeObjects, scratch *[]objectVersion) (*serve.Text, error) {
	if scratch == nil {
		scratch = new([]objectVersion)
	}
	*scratch = o.versions((*scratch)[:0])
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.entries[o.volume.Name]
	if kept != nil && slices.Equal(kept.of, *scratch) {
		return kept.text, nil
	}
	view := volumeView(q.WithoutBase(), o.parts())
	t, err := serve.NewText(view, &view.Resource)
	if err != nil {
		return nil, fmt.Errorf("encoding volume %s: %w", o.volume.Name, err)
	}
	if kept != nil && kept.text.Equal(t) {
		t = kept.text
	}
	if c.entries == nil {
		c.entries = map[string]*volumeEntry{}
	}
	c.entries[o.volume.Name] = &volumeEntry{slices.Clone(*scratch), t}
	return t, nil
}

// keep drops all volumes but those that there are.
func (c *cache) keep(all map[string]*volumeObjects) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.entries {
		if all[name] == nil {
			delete(c.entries, name)
		}
	}
}

func (c *cache) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, name)
}

// allObjects reads all volumes with their parts, by name.
func allObjects(ctx context.Context, o *serve.Objects) (map[string]*volumeObjects, error) {
	var volumes lh.VolumeList
	var engines lh.EngineList
	var replicas lh.ReplicaList
	var attachments lh.VolumeAttachmentList
	for _, kind := range []struct {
		what string
		list client.ObjectList
	}{{"volumes", &volumes}, {"engines", &engines}, {"replicas", &replicas}, {"volume attachments", &attachments}} {
		if err := o.ListShared(ctx, kind.list); err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.what, err)
		}
	}
	all := make(map[string]*volumeObjects, len(volumes.Items))
	for i := range volumes.Items {
		all[volumes.Items[i].Name] = &volumeObjects{volume: &volumes.Items[i]}
	}
	// Parts of a volume that is gone are nobody's.
	for i := range engines.Items {
		if v := all[engines.Items[i].Spec.VolumeName]; v != nil {
			v.engines = append(v.engines, &engines.Items[i])
		}
	}
	for i := range replicas.Items {
		if v := all[replicas.Items[i].Spec.VolumeName]; v != nil {
			v.replicas = append(v.replicas, &replicas.Items[i])
		}
	}
	for i := range attachments.Items {
		if v := all[attachments.Items[i].Name]; v != nil {
			v.attachment = &attachments.Items[i]
		}
	}
	return all, nil
}

// objectsOf reads one volume with its parts by the indexes of the leader's cache. A reader without
// them fails.
func objectsOf(ctx context.Context, o *serve.Objects, name string) (*volumeObjects, error) {
	v := &volumeObjects{volume: &lh.Volume{}, attachment: &lh.VolumeAttachment{}}
	key := types.NamespacedName{Namespace: o.Namespace, Name: name}
	if err := o.Reader.Get(ctx, key, v.volume, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	switch err := o.Reader.Get(ctx, key, v.attachment, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		v.attachment = nil
	case err != nil:
		return nil, err
	}
	var engines lh.EngineList
	var replicas lh.ReplicaList
	if err := o.ListShared(ctx, &engines, index.OfVolume(name)); err != nil {
		return nil, err
	}
	if err := o.ListShared(ctx, &replicas, index.OfVolume(name)); err != nil {
		return nil, err
	}
	for i := range engines.Items {
		v.engines = append(v.engines, &engines.Items[i])
	}
	for i := range replicas.Items {
		v.replicas = append(v.replicas, &replicas.Items[i])
	}
	return v, nil
}

// listVolumes lists all volumes, encoding those that have changed since somebody listed them.
func (a *API) listVolumes(q *serve.Request) (any, error) {
	all, err := allObjects(q.Context(), q.Objects)
	if err != nil {
		return nil, err
	}
	head := serve.Collection(q, resource.TypeVolume, []*resource.Volume{})
	head.CreateTypes = map[string]string{resource.TypeVolume: q.CollectionURL(resource.TypeVolume)}
	list, err := serve.NewListing(q, head, len(all))
	if err != nil {
		return nil, err
	}
	var scratch []objectVersion
	for _, name := range slices.Sorted(maps.Keys(all)) {
		o := all[name]
		o.sort()
		t, err := a.cache.get(q, o, &scratch)
		if err != nil {
			return nil, err
		}
		list.Add(name, t)
	}
	a.cache.keep(all)
	return list, nil
}

// volumesSince makes the list of volumes from the one before and the names of those that may have
// changed, reading those alone.
func (a *API) volumesSince(q *serve.Request, before *serve.Listing, names []string) (*serve.Listing, error) {
	texts := map[string]*serve.Text{}
	for _, name := range names {
		o, err := objectsOf(q.Context(), q.Objects, name)
		if apierrors.IsNotFound(err) {
			a.cache.drop(name)
			texts[name] = nil
			continue
		}
		if err != nil {
			return nil, err
		}
		o.sort()
		if texts[name], err = a.cache.get(q, o, nil); err != nil {
			return nil, err
		}
	}
	return before.With(texts), nil
}

// volumeOf names the volume that an object is seen in.
func volumeOf(o client.Object) string {
	switch o := o.(type) {
	case *lh.Engine:
		return o.Spec.VolumeName
	case *lh.Replica:
		return o.Spec.VolumeName
	}
	return o.GetName()
}
