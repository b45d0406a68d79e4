-- SELECT a, min(b) AS least, max(c) AS last FROM r GROUP BY a

-- @: extrema, key a, changes paired
SELECT
  `a`,
  `least`,
  `last`,
  `_hw_rows`,
  `_hw_least_most`,
  `_hw_last_most`,
  `_hw_in_doubt`,
  `_hw_old_a`,
  `_hw_old_least`,
  `_hw_old_last`,
  `_hw_old__hw_rows`,
  `_hw_old__hw_least_most`,
  `_hw_old__hw_last_most`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    `a` AS `a`,
    `_hw_least_most` AS `least`,
    `_hw_last_most` AS `last`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_least_most` AS `_hw_least_most`,
    `_hw_last_most` AS `_hw_last_most`,
    `_hw_in_doubt` AND `_hw_rows` > 0 AS `_hw_in_doubt`,
    `_hw_old_a` AS `_hw_old_a`,
    `_hw_old_least` AS `_hw_old_least`,
    `_hw_old_last` AS `_hw_old_last`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_old__hw_least_most` AS `_hw_old__hw_least_most`,
    `_hw_old__hw_last_most` AS `_hw_old__hw_last_most`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      `a` AS `a`,
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      LEAST(`_hw_old__hw_least_most`, `_hw_came__hw_least_most`) AS `_hw_least_most`,
      GREATEST(`_hw_old__hw_last_most`, `_hw_came__hw_last_most`) AS `_hw_last_most`,
      (
        NOT `_hw_went__hw_least_most` IS NULL
        AND NOT COALESCE((
          `_hw_went__hw_least_most` > `_hw_old__hw_least_most`
        ), FALSE)
      )
      OR (
        NOT `_hw_went__hw_last_most` IS NULL
        AND NOT COALESCE((
          `_hw_went__hw_last_most` < `_hw_old__hw_last_most`
        ), FALSE)
      ) AS `_hw_in_doubt`,
      `_hw_old_a` AS `_hw_old_a`,
      `_hw_old_least` AS `_hw_old_least`,
      `_hw_old_last` AS `_hw_old_last`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_old__hw_least_most` AS `_hw_old__hw_least_most`,
      `_hw_old__hw_last_most` AS `_hw_old__hw_last_most`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `a`,
        `_hw_d__hw_rows`,
        `_hw_came__hw_least_most`,
        `_hw_went__hw_least_most`,
        `_hw_came__hw_last_most`,
        `_hw_went__hw_last_most`,
        `_hw_old_a`,
        `_hw_old_least`,
        `_hw_old_last`,
        `_hw_old__hw_rows`,
        `_hw_old__hw_least_most`,
        `_hw_old__hw_last_most`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          `a`,
          SUM(`_hw_w`) AS `_hw_d__hw_rows`,
          MIN(CASE WHEN `_hw_w` > 0 THEN `b` END) AS `_hw_came__hw_least_most`,
          MIN(CASE WHEN `_hw_w` < 0 THEN `b` END) AS `_hw_went__hw_least_most`,
          MAX(CASE WHEN `_hw_w` > 0 THEN `c` END) AS `_hw_came__hw_last_most`,
          MAX(CASE WHEN `_hw_w` < 0 THEN `c` END) AS `_hw_went__hw_last_most`
        FROM (
          SELECT
            `a` AS `a`,
            `b` AS `b`,
            `c` AS `c`,
            `rowid` AS `r_rowid`,
            `_hw_w`
          FROM `r@delta`
        ) AS _t
        GROUP BY
          `a`
      ) AS _l
      LEFT JOIN (
        SELECT
          `a` AS `_hw_old_a`,
          `least` AS `_hw_old_least`,
          `last` AS `_hw_old_last`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_least_most` AS `_hw_old__hw_least_most`,
          `_hw_last_most` AS `_hw_old__hw_last_most`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@@old`
      ) AS _r
        ON `a` IS NOT DISTINCT FROM `_hw_old_a`
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    `_hw_in_doubt`
    OR NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND (
        `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
        AND `_hw_least_most` IS NOT DISTINCT FROM `_hw_old__hw_least_most`
        AND `_hw_last_most` IS NOT DISTINCT FROM `_hw_old__hw_last_most`
      )
    )
  )
