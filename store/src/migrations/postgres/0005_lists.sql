-- Columns that must hold a JSON list. Rows that are there stay as they are: documents leave out what
-- they cannot read. What is no JSON at all is refused by the cast.
ALTER TABLE sitemap_url ADD CONSTRAINT sitemap_url_images_is_list
  CHECK (json_typeof(CAST(images AS json)) = 'array') NOT VALID;
ALTER TABLE podcast ADD CONSTRAINT podcast_funding_is_list
  CHECK (json_typeof(CAST(funding AS json)) = 'array') NOT VALID;
ALTER TABLE podcast ADD CONSTRAINT podcast_persons_is_list
  CHECK (json_typeof(CAST(persons AS json)) = 'array') NOT VALID;
ALTER TABLE podcast ADD CONSTRAINT podcast_txt_is_list
  CHECK (json_typeof(CAST(txt AS json)) = 'array') NOT VALID;
ALTER TABLE episode ADD CONSTRAINT episode_transcripts_is_list
  CHECK (json_typeof(CAST(transcripts AS json)) = 'array') NOT VALID;
ALTER TABLE episode ADD CONSTRAINT episode_persons_is_list
  CHECK (json_typeof(CAST(persons AS json)) = 'array') NOT VALID;
