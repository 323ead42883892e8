package request

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/client"
)

// schemeImage begins the id of a snapshot whose content is a backing image.
const schemeImage = "bi://"

// paramImage is the parameter of a StorageClass, and of an id, that names the image.
const paramImage = "backingImage"

// IsImageID reports whether the id of a snapshot names a backing image.
func IsImageID(id string) bool { return strings.HasPrefix(id, schemeImage) }

// ImageID is the id of a snapshot whose content is a backing image: its query has what a
// StorageClass would say of the image, and the parameters of its source.
func ImageID(s client.BackingImageSpec) string {
	q := url.Values{paramImage: {s.Name}, paramImageSource: {s.SourceType}}
	if s.ExpectedChecksum != "" {
		q.Set(paramImageChecksum, s.ExpectedChecksum)
	}
	for key, value := range s.Parameters {
		q.Set(key, value)
	}
	return schemeImage + "backing?" + q.Encode()
}

// ParseImageID reads such an id; the error says what is wrong with it.
func ParseImageID(id string) (client.BackingImageSpec, error) {
	u, err := url.Parse(id)
	if err != nil || !IsImageID(id) || u.Host != "backing" {
		return client.BackingImageSpec{}, fmt.Errorf("%q is not bi://backing?%s=<name>&%s=<source>&…", id, paramImage,
			paramImageSource)
	}
	w := Wish{Image: client.BackingImageSpec{Parameters: map[string]string{}}}
	known := ofImages()
	for key, values := range u.Query() {
		i := slices.IndexFunc(known, func(p parameter) bool { return p.name == key && key != paramImageParameters })
		switch {
		case key == paramImage:
			w.Image.Name = values[0]
		case i >= 0:
			err = cmp.Or(err, known[i].set(&w, values[0]))
		default:
			w.Image.Parameters[key] = values[0]
		}
	}
	if err == nil {
		err = naming.CheckName(w.Image.Name)
	}
	if err == nil && w.Image.SourceType == "" {
		err = fmt.Errorf("it has no %s", paramImageSource)
	}
	if err != nil {
		return client.BackingImageSpec{}, fmt.Errorf("%q: %w", id, err)
	}
	return w.Image, nil
}

// ImageOfClass is the image that a VolumeSnapshotClass of type bi has made of a volume.
func ImageOfClass(given map[string]string) (s client.BackingImageSpec, err error) {
	kind := cmp.Or(given["exportType"], given["export-type"], "raw")
	if kind != "raw" && kind != "qcow2" {
		return s, Refuse("exportType %q of a VolumeSnapshotClass is neither raw nor qcow2", kind)
	}
	return client.BackingImageSpec{SourceType: string(lh.BackingImageSourceTypeExportFromVolume),
		Parameters:   map[string]string{lh.BackingImageParameterExportType: kind},
		NodeSelector: tags(given["nodeSelector"]), DiskSelector: tags(given["diskSelector"])}, nil
}
