package request

import (
	"encoding/json"
	"fmt"
	"strconv"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/rest/client"
)

// Parameters of a StorageClass that have the image of parameter backingImage made.
const (
	paramImageSource     = "backingImageDataSourceType"
	paramImageParameters = "backingImageDataSourceParameters"
	paramImageChecksum   = "backingImageChecksum"
	paramImageCopies     = "backingImageMinNumberOfCopies"
	paramImageNodes      = "backingImageNodeSelector"
	paramImageDisks      = "backingImageDiskSelector"
)

// imageSources are those that need nobody who does more: a user uploads by himself.
var imageSources = []string{string(lh.BackingImageSourceTypeDownload), string(lh.BackingImageSourceTypeUpload),
	string(lh.BackingImageSourceTypeExportFromVolume), string(lh.BackingImageSourceTypeRestore),
	string(lh.BackingImageSourceTypeClone)}

// ofImages are the parameters that have an image made. Which of them go together is the manager's
// to judge.
func ofImages() []parameter {
	image := func(set func(i *client.BackingImageSpec, value string) error) func(*Wish, string) error {
		return func(w *Wish, value string) error { return set(&w.Image, value) }
	}
	return []parameter{
		{name: paramImageSource, set: choice(imageSources, func(w *Wish) *string { return &w.Image.SourceType })},
		{name: paramImageParameters, set: image(imageParameters)},
		{name: paramImageChecksum, set: image(func(i *client.BackingImageSpec, value string) error {
			i.ExpectedChecksum = value
			return nil
		})},
		{name: paramImageCopies, set: image(func(i *client.BackingImageSpec, value string) (err error) {
			if i.MinNumberOfCopies, err = strconv.Atoi(value); err != nil || i.MinNumberOfCopies < 1 {
				return fmt.Errorf("%q is not a number of copies: 1 or more", value)
			}
			return nil
		})},
		{name: paramImageNodes, set: image(func(i *client.BackingImageSpec, value string) error {
			i.NodeSelector = tags(value)
			return nil
		})},
		{name: paramImageDisks, set: image(func(i *client.BackingImageSpec, value string) error {
			i.DiskSelector = tags(value)
			return nil
		})},
	}
}

// imageParameters is a JSON object of texts.
func imageParameters(i *client.BackingImageSpec, value string) error {
	if err := json.Unmarshal([]byte(value), &i.Parameters); err != nil {
		return fmt.Errorf(`%q is not an object such as {"url":"https://example.org/disk.raw"}: %v`, value, err)
	}
	return nil
}
