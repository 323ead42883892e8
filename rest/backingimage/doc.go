// Package backingimage answers requests of the /v1 API about backing images. Uploads and downloads
// are passed on between the client and the process that has the file, as they come.
package backingimage
